"""Small tasks for a model that is only prompted: a few words in, one word out. Written by hand; the first four items
of a task are its examples, and no model is asked for those.
"""

from __future__ import annotations

from dataclasses import dataclass

N_SHOTS = 4


@dataclass(frozen=True)
class Task:
    """How a task is asked, and its items: what is given, and the answer."""

    sentence: str
    """How it is asked in words, with {} for the item: the beginning of a text that the answer goes on with."""
    items: tuple[tuple[str, str], ...]

    def zero_shot(self, item: str) -> str:
        """Asked in words alone."""
        return self.sentence.format(item)

    def few_shot(self, item: str) -> str:
        """By four examples alone: nothing says what is wanted."""
        return "".join(f"{a} -> {b}\n" for a, b in self.items[:N_SHOTS]) + f"{item} ->"

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """The items that are no examples."""
        return self.items[N_SHOTS:]


def _items(text: str) -> tuple[tuple[str, str], ...]:
    """Of lines "a = b; c = d"."""
    pairs = (pair.split("=") for line in text.strip().splitlines() for pair in line.split(";") if pair.strip())
    return tuple((a.strip(), b.strip()) for a, b in pairs)


TASKS = {
    "capital": Task(
        "The capital city of {} is called",
        _items("""
        France = Paris; Japan = Tokyo; Egypt = Cairo; Peru = Lima
        Italy = Rome; Spain = Madrid; Germany = Berlin; England = London; Russia = Moscow; Greece = Athens
        Portugal = Lisbon; Austria = Vienna; Poland = Warsaw; Ireland = Dublin; Norway = Oslo; Sweden = Stockholm
        Finland = Helsinki; Cuba = Havana; Iran = Tehran; Iraq = Baghdad; Kenya = Nairobi; Hungary = Budapest
        Belgium = Brussels; Canada = Ottawa; Thailand = Bangkok; Turkey = Ankara; China = Beijing; Chile = Santiago
        """),
    ),
    "opposite": Task(
        "The opposite of {} is",
        _items("""
        big = small; up = down; rich = poor; wet = dry
        hot = cold; old = young; day = night; open = closed; left = right; good = bad
        black = white; light = dark; fast = slow; high = low; long = short; hard = soft
        early = late; full = empty; happy = sad; strong = weak; true = false; win = lose
        inside = outside; first = last; love = hate; above = below; north = south; east = west
        """),
    ),
    "plural": Task(
        "One {}, two",
        _items("""
        cat = cats; box = boxes; child = children; city = cities
        dog = dogs; tree = trees; house = houses; baby = babies; leaf = leaves; foot = feet
        tooth = teeth; mouse = mice; man = men; woman = women; knife = knives; wolf = wolves
        bus = buses; dish = dishes; watch = watches; story = stories; book = books; car = cars
        life = lives; goose = geese; glass = glasses; lady = ladies; friend = friends; church = churches
        """),
    ),
    "past": Task(
        "Today they {}. Yesterday they",
        _items("""
        go = went; walk = walked; see = saw; buy = bought
        eat = ate; run = ran; give = gave; take = took; write = wrote; speak = spoke
        think = thought; bring = brought; teach = taught; find = found; sing = sang; swim = swam
        fly = flew; know = knew; begin = began; make = made; play = played; open = opened
        call = called; look = looked; sleep = slept; keep = kept; fall = fell; drive = drove
        """),
    ),
    "French": Task(
        "English: {}\nFrench:",
        _items("""
        house = maison; water = eau; bread = pain; day = jour
        dog = chien; cat = chat; book = livre; night = nuit; milk = lait; wine = vin
        friend = ami; king = roi; queen = reine; red = rouge; white = blanc; black = noir
        green = vert; one = un; two = deux; three = trois; man = homme; woman = femme
        horse = cheval; fish = poisson; school = école; town = ville; sea = mer; sun = soleil
        """),
    ),
    "last of a list": Task(
        "{}. The last word of this list is",
        _items("""
        red, green, blue = blue; one, two, three = three; cat, dog, cow = cow; pen, cup, hat = hat
        sun, moon, star = star; bread, milk, egg = egg; king, queen, prince = prince; sea, lake, river = river
        north, south, east = east; car, train, ship = ship; apple, pear, plum = plum; gold, iron, tin = tin
        hand, foot, head = head; spring, summer, winter = winter; door, wall, roof = roof; rain, snow, wind = wind
        lion, wolf, bear = bear; table, chair, bed = bed; shirt, coat, shoe = shoe; oak, pine, elm = elm
        Paris, Rome, London = London; Monday, Friday, Sunday = Sunday; big, small, tall = tall; run, walk, swim = swim
        fork, knife, spoon = spoon; rose, lily, tulip = tulip; ten, six, nine = nine; pink, grey, brown = brown
        """),
    ),
    "Python": Task(
        "In Python, the {} of x is",
        _items("""
        length = len(x); largest = max(x); absolute value = abs(x); type = type(x)
        smallest = min(x); sum = sum(x); sorted list = sorted(x); string = str(x); integer = int(x); hash = hash(x)
        float = float(x); list = list(x); set = set(x); tuple = tuple(x); dictionary = dict(x); range = range(x)
        maximum = max(x); minimum = min(x); total = sum(x); size = len(x); truth value = bool(x); identity = id(x)
        """),
    ),
}
