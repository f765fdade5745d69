"""How well a finished model does, by what it was made for: a module a kind of answer. Each gives a record whose
`summary()` has the numbers by name.
"""
