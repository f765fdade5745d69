"""Runs that are spread over the processes which `torchrun` starts, by torch's own means.

`processes` joins them, `world` is how they agree, `rows` cuts a batch, `tensor` shares matrices (DTensor), `engine`
adds gradients up (DDP) or shares weights (FSDP2), `sequence` shares the tokens of a row, `whole` puts together again
what is saved. Whatever the split, a step is what one process would make of it.
"""
