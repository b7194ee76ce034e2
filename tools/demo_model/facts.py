"""Questions about the small world of words.py, each with its answer. Owns single questions, not conversations."""

import random

import words
from grammar import capital, expand

Ask = tuple[str, str]  # question, answer


def at_home(home: str) -> str:
    return f"on {home}" if home in ("a farm", "the cold coast") else f"in {home}"


def animal(rng: random.Random) -> Ask:
    kind = rng.choice(list(words.ANIMALS))
    sound, home, food, baby, legs = words.ANIMALS[kind]
    asks = [("Where does a $k live?", f"A $k lives {at_home(home)}."), ("What does a $k eat?", f"A $k eats {food}.")]
    if sound:
        only = [k for k, row in words.ANIMALS.items() if row[0] == sound] == [kind]
        asks += [
            ("{What sound does a $k make|What does a $k say|How does a $k sound}?", f"A $k says {sound}."),
            (f"{{Who|Which animal}} says {sound}?", f"A $k says {sound}."),
        ][: 2 if only else 1] * 2
    if baby and baby not in ("chick", "cub", "pup", "calf", "foal", "kit"):
        asks.append((f"What is a {baby}?", f"A {baby} is a baby $k."))
    if baby:
        asks.append(
            (
                "{What is a baby $k called|What do you call a baby $k|What is the baby of a $k called}?",
                f"A baby $k is called a {baby}.",
            )
        )
    if legs is not None:
        count = f"{words.NUMBERS[legs]} legs" if legs else "no legs"
        asks.append(("How many legs does a $k have?", f"A $k has {count}."))
    asks.append(("Can a $k fly?", "Yes, a $k can fly." if kind in words.FLIES else "No, a $k cannot fly."))
    if kind in words.SWIMS:
        asks.append(("Can a $k swim?", "Yes, a $k can swim well."))
    question, answer = rng.choice(asks)
    return expand(rng, question, {"k": kind}), expand(rng, answer, {"k": kind})


def about_animal(rng: random.Random) -> Ask:
    kind = rng.choice(list(words.ANIMALS))
    sound, home, food, baby, legs = words.ANIMALS[kind]
    parts = [f"A $k lives {at_home(home)} and eats {food}."]
    if sound:
        parts.append(f"It says {sound}.")
    if legs:
        parts.append(f"It has {words.NUMBERS[legs]} legs.")
    if baby:
        parts.append(f"A baby $k is called a {baby}.")
    question = "{Tell me about a $k|What is a $k|What do you know about a $k|Tell me something about a $k}"
    question = expand(rng, question, {"k": kind})
    return question + ("?" if question.startswith("What") else "."), expand(rng, " ".join(parts), {"k": kind})


def check(thing: str, truth: str, guess: str) -> str:
    """What is known comes first in the answer, so that "yes" and "not" can be read off it."""
    return f"{capital(thing)} is {truth}, {'yes' if guess == truth else 'not ' + guess}."


def is_colour(rng: random.Random, thing: str, hue: str) -> Ask:
    guess = hue if rng.random() < 0.5 else rng.choice([c for c in words.KINDS_OF["colour"] if c != hue])
    return expand(rng, f"Is {thing} {guess}?"), expand(rng, check(thing, hue, guess))


def colour(rng: random.Random) -> Ask:
    thing, hue = rng.choice(list(words.COLOURS.items()))
    if rng.random() < 0.25:
        return is_colour(rng, thing, hue)
    return (
        expand(rng, f"{{What colour is {thing}|What color is {thing}|What is the colour of {thing}}}?"),
        expand(rng, f"{capital(thing)} is {hue}."),
    )


def opposite(rng: random.Random) -> Ask:
    pair = rng.choice(words.OPPOSITES)
    word, other = pair if rng.random() < 0.5 else pair[::-1]
    return (
        expand(rng, f"{{What is the opposite of {word}|What is the opposite of {word}|The opposite of {word}}}?"),
        f"The opposite of {word} is {other}.",
    )


def sum_or_difference(rng: random.Random) -> Ask:
    first, second = rng.randint(0, 20), rng.randint(0, 20)
    if rng.random() < 0.5:
        first, second = rng.choice([(a, b) for a in range(21) for b in range(21 - a)])
        sign, name, result = "+", "plus", first + second
    else:
        first, second = max(first, second), min(first, second)
        sign, name, result = "-", "minus", first - second
    if rng.random() < 0.12:
        a, b, c = (words.NUMBERS[n] for n in (first, second, result))
        return f"What is {a} {name} {b}?", f"{capital(a)} {name} {b} is {c}."
    ask = rng.choice(
        [
            f"What is {first} {name} {second}?",
            f"What is {first} {sign} {second}?",
            f"How much is {first} {name} {second}?",
            f"{first} {name} {second}?",
            f"{first} {sign} {second} = ?",
            f"{first}{sign}{second}",
            f"{first} {sign} {second}",
        ]
    )
    return ask, f"{first} {name} {second} is {result}."


def numbers(rng: random.Random) -> Ask:
    n = rng.randint(1, 19)
    low, high = sorted(rng.sample(range(21), 2))
    first, second = rng.sample((low, high), 2)
    end = rng.choice((3, 5, 10))
    return rng.choice(
        [
            (f"What number comes after {n}?", f"The number after {n} is {n + 1}."),
            (f"What number comes before {n}?", f"The number before {n} is {n - 1}."),
            (
                f"Which is {rng.choice(('bigger', 'more', 'larger'))}, {first} or {second}?",
                f"{high} is more than {low}.",
            ),
            (f"Which is {rng.choice(('smaller', 'less'))}, {first} or {second}?", f"{low} is less than {high}."),
            (
                rng.choice(("Count to", "Count from 1 to", "Please count to")) + f" {end}.",
                ", ".join(map(str, range(1, end + 1))) + ".",
            ),
        ]
    )


def calendar(rng: random.Random) -> Ask:
    day, month, season = rng.randrange(7), rng.randrange(12), rng.randrange(4)
    days, months, seasons = words.DAYS, words.MONTHS, words.SEASONS
    order = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
    return rng.choice(
        [
            (
                expand(rng, f"{{What|Which}} day comes after {days[day]}?"),
                f"{days[(day + 1) % 7]} comes after {days[day]}.",
            ),
            (
                expand(rng, f"{{What|Which}} day comes before {days[day]}?"),
                f"{days[day - 1]} comes before {days[day]}.",
            ),
            (f"Today is {days[day]}. What day is tomorrow?", f"Tomorrow is {days[(day + 1) % 7]}."),
            (
                expand(rng, f"{{What|Which}} month comes after {months[month]}?"),
                f"{months[(month + 1) % 12]} comes after {months[month]}.",
            ),
            (
                expand(rng, f"{{What|Which}} month comes before {months[month]}?"),
                f"{months[month - 1]} comes before {months[month]}.",
            ),
            (f"What is the {order[month]} month of the year?", f"The {order[month]} month is {months[month]}."),
            (
                f"What season comes after {seasons[season]}?",
                f"{capital(seasons[(season + 1) % 4])} comes after {seasons[season]}.",
            ),
            (
                expand(rng, f"{{What happens in {seasons[season]}|What is {seasons[season]} like}}?"),
                f"In {seasons[season]}, {words.SEASON_FACTS[seasons[season]]}.",
            ),
            rng.choice(
                [
                    ("How many days are in a week?", "There are seven days in a week."),
                    ("How many months are in a year?", "There are twelve months in a year."),
                    ("How many seasons are there?", "There are four seasons: spring, summer, autumn and winter."),
                    ("What are the days of the week?", "The days are " + ", ".join(days[:-1]) + " and Sunday."),
                    ("What are the seasons?", "The seasons are spring, summer, autumn and winter."),
                    ("What is the first day of the week?", "The first day of the week is Monday."),
                ]
            ),
        ]
    )


def kind_of(rng: random.Random) -> Ask:
    kind = rng.choice(list(words.KINDS_OF))
    member = rng.choice(words.KINDS_OF[kind])
    some = rng.sample(words.KINDS_OF[kind], 3)
    a = "" if kind == "colour" else "a "
    thing = f"{a}{member}"
    other = rng.choice([k for k in words.KINDS_OF if k != kind and {k, kind} != {"fruit", "colour"}])
    asks = [
        (f"Is {thing} a {kind}?", check(thing, f"a {kind}", f"a {kind}")),
        (f"Is {thing} a {other}?", check(thing, f"a {kind}", f"a {other}")),
        (f"Is {thing} a {kind} or a {other}?", f"{capital(thing)} is a {kind}."),
        (f"Is {thing} a {other} or a {kind}?", f"{capital(thing)} is a {kind}."),
        (f"{{Name a {kind}|Tell me a {kind}|Do you know a {kind}}}", f"{capital(thing)} is a {kind}."),
        (
            f"{{Name three {kind}s|Tell me three {kind}s|Do you know some {kind}s}}",
            f"Three {kind}s are {a}{some[0]}, {a}{some[1]} and {a}{some[2]}.",
        ),
    ]
    if member == "orange":
        asks = asks[:1]
    question, answer = rng.choice(asks)
    question, answer = expand(rng, question), expand(rng, answer)
    end = "" if question.endswith("?") else "?" if question.startswith("Do") else "."
    return question + end, answer


def use(rng: random.Random) -> Ask:
    thing, purpose = rng.choice(list(words.USES.items()))
    sense, part = rng.choice(list(words.SENSES.items()))
    big, small = sorted(rng.sample(range(len(words.BIGGER)), 2), reverse=True)
    big_name, small_name = words.BIGGER[big], words.BIGGER[small]
    first, second = rng.sample((big_name, small_name), 2)
    question, answer = rng.choice(
        [
            (
                f"{{What do you do with {thing}|What is {thing} for|Why do we need {thing}}}?",
                f"You use {thing} to {purpose}.",
            ),
            (f"{{What do you need|What do I need}} to {purpose}?", f"You need {thing} to {purpose}."),
            (f"{{What do you {sense} with|What do we use to {sense}}}?", f"We {sense} with our {part}."),
            (
                f"{{Which is bigger|What is bigger|Who is bigger}}, a {first} or a {second}?",
                "A $b is bigger than a $s.",
            ),
            (
                f"Is a {first} bigger than a {second}?",
                ("Yes, a" if first == big_name else "No, a") + " $b is bigger than a $s.",
            ),
        ]
    )
    slots = {"b": big_name, "s": small_name}
    question = question.replace("What is scissors", "What are scissors")
    return expand(rng, question, slots), expand(rng, answer, slots)


PLAIN = [
    tuple(line.split(" / "))
    for line in """
Is fire hot? / Yes, fire is very hot.
Is ice cold? / Yes, ice is very cold.
Is snow hot? / No, snow is cold.
Is the sun hot? / Yes, the sun is very hot.
Is water wet? / Yes, water is wet.
What is ice made of? / Ice is made of frozen water.
What do bees make? / Bees make honey.
What do hens lay? / Hens lay eggs.
What do cows give us? / Cows give us milk.
What do sheep give us? / Sheep give us wool.
Where does milk come from? / Milk comes from cows.
Where do eggs come from? / Eggs come from hens.
Where does honey come from? / Honey comes from bees.
Where does rain come from? / Rain comes from the clouds.
What is bread made of? / Bread is made of flour and water.
What falls from the clouds? / Rain and snow fall from the clouds.
What shines at night? / The moon and the stars shine at night.
What shines in the day? / The sun shines in the day.
When does the sun rise? / The sun rises in the morning.
When does the sun set? / The sun sets in the evening.
When do we sleep? / We sleep at night.
When do we eat breakfast? / We eat breakfast in the morning.
How many eyes do you have? / I have no eyes, but people have two eyes.
How many fingers are on one hand? / There are five fingers on one hand.
How many wheels does a bicycle have? / A bicycle has two wheels.
How many wheels does a car have? / A car has four wheels.
How many sides does a square have? / A square has four sides.
How many sides does a triangle have? / A triangle has three sides.
What shape is a ball? / A ball is round.
What do plants need? / Plants need water, sun and good soil.
What do we drink when we are thirsty? / We drink water when we are thirsty.
What is a rainbow? / A rainbow is many colours in the sky after the rain.
What colours are in a rainbow? / A rainbow is red, orange, yellow, green, blue and purple.
What is the moon? / The moon is a bright ball of stone in the night sky.
What is the sun? / The sun is a very big and hot star.
What is a friend? / A friend is someone who likes you and helps you.
Why is it good to share? / It is good to share because it makes everyone happy.
What should I do when it rains? / Take an umbrella, or stay inside and read a book.
What should I do when I am sad? / Talk to a friend. It helps to share your feelings.
What should I wear when it is cold? / Wear a warm coat, a hat and a scarf.
Can people fly? / No, people cannot fly, but they can build planes.
Can a fish walk? / No, a fish cannot walk. It swims.
Can a fish swim? / Yes, a fish can swim very well.
Can a stone swim? / No, a stone cannot swim.
Where do fish live? / Fish live in the water.
Where do birds live? / Birds live in nests.
Where do bees live? / Bees live in a hive.
Do birds have wings? / Yes, birds have two wings.
Do cats like milk? / Yes, many cats like milk.
What is the biggest animal? / The biggest animal is the whale.
What animal has a long neck? / A giraffe has a long neck.
What animal has a trunk? / An elephant has a trunk.
What animal has a shell? / A turtle has a shell.
What animal gives milk? / A cow gives milk.
What animal carries its house? / A snail carries its house.
""".strip().split("\n")
]


def follow_up(rng: random.Random) -> list[Ask]:
    """One question, then "And a horse?": the answer needs the turn before."""
    what = rng.choice(("sound", "home", "food", "legs", "colour", "opposite"))
    if what == "colour":
        rows = [(thing, f"{capital(thing)} is {hue}.") for thing, hue in words.COLOURS.items()]
        first = "What colour is $x?"
    elif what == "opposite":
        rows = [
            (word, f"The opposite of {word} is {other}.")
            for pair in words.OPPOSITES
            for word, other in (pair, pair[::-1])
        ]
        first = "What is the opposite of $x?"
    else:
        index = ("sound", "home", "food", "baby", "legs").index(what)
        first = ("What does $x say?", "Where does $x live?", "What does $x eat?", "", "How many legs does $x have?")[
            index
        ]
        rows = []
        for kind, row in words.ANIMALS.items():
            if row[index] is None:
                continue
            legs = f"has {words.NUMBERS[row[4]] if row[4] else 'no'} legs"
            rows.append(
                (
                    f"a {kind}",
                    f"A {kind} "
                    + (f"says {row[0]}", f"lives {at_home(row[1])}", f"eats {row[2]}", "", legs)[index]
                    + ".",
                )
            )
    chosen = rng.sample(rows, rng.choice((2, 2, 3)))
    asks = [expand(rng, first if i == 0 else "{And|What about} $x?", {"x": x}) for i, (x, _) in enumerate(chosen)]
    return [(question, expand(rng, answer)) for question, (_, answer) in zip(asks, chosen, strict=True)]


def plain(rng: random.Random) -> Ask:
    return rng.choice(PLAIN)


# How often each kind of question is asked; sums are many, so they come often.
TOPICS = (
    (animal, 7),
    (about_animal, 2),
    (colour, 4),
    (opposite, 4),
    (sum_or_difference, 14),
    (numbers, 7),
    (calendar, 4),
    (kind_of, 4),
    (use, 4),
    (plain, 4),
)


def ask(rng: random.Random) -> Ask:
    topic = rng.choices([topic for topic, _ in TOPICS], [weight for _, weight in TOPICS])[0]
    return topic(rng)


def hard_ask(rng: random.Random) -> Ask:
    """The questions that training answers worst: a word of the question against what is known, and numbers."""
    sort = rng.random()
    if sort < 0.35:
        return is_colour(rng, *rng.choice(list(words.COLOURS.items())))
    if sort < 0.7:
        while True:
            question, answer = kind_of(rng)
            if question.startswith("Is ") and " or " not in question:
                return question, answer
    return rng.choice((sum_or_difference, numbers, use))(rng)
