"""Stories: a cast, a plot, and the same names, pronouns and things from the first sentence to the last.

Owns the choice of slots; the sentences are in plots.py. A story knows the questions that can be asked about it.
"""

import dataclasses
import hashlib
import random

import phrases
import plots
import words
from grammar import Slots, capital, expand

PRONOUNS = {"f": ("she", "her", "her"), "m": ("he", "him", "his")}
RELATIVES = {"grandmother": "her", "grandfather": "him", "mother": "her", "uncle": "him", "aunt": "her"}


Ask = tuple[str, str]  # question, answer


@dataclasses.dataclass
class Story:
    text: str
    asks: list[Ask]
    about: list[str]  # what a reader may ask for: "a fox", "a shy fox and a kite", "sharing"


@dataclasses.dataclass
class Person:
    kind: str  # girl, fox, robot
    name: str  # may be empty: then he or she is "the fox"
    gender: str
    home: str
    trait: str

    def calling(self) -> str:
        return self.name or f"the {self.kind}"

    def someone(self) -> str:
        """The person at first sight: "a shy fox named Rusty"."""
        return f"a {self.trait} {self.kind}" + (f" named {self.name}" if self.name else "")


def held_out(person: Person, thing: str, place: str) -> bool:
    """One pair in eight of who and what, and one in eight of who and where, never occurs in training."""

    def eighth(pair: str) -> bool:
        return hashlib.blake2b(pair.encode(), digest_size=2).digest()[0] % 8 == 0

    who = person.name or person.kind
    return eighth(f"{who}/{thing}") or eighth(f"{who}@{place}")


def make_person(rng: random.Random, traits: list[str], not_gender: str | None = None) -> Person:
    gender = rng.choice("fm")
    if not_gender and rng.random() < 0.75:
        gender = "m" if not_gender == "f" else "f"
    trait = rng.choice(traits)
    sort = rng.random()
    if sort < 0.42:
        trait = "young" if trait == "old" else trait
        kind = {"f": "girl", "m": "boy"}[gender]
        return Person(
            kind, rng.choice(words.GIRLS if gender == "f" else words.BOYS), gender, rng.choice(words.CHILD_HOMES), trait
        )
    name = rng.choice(words.ANIMAL_NAMES) if rng.random() < 0.45 else ""
    if sort < 0.82:
        kind = rng.choice(list(words.STORY_ANIMALS))
        return Person(kind, name, gender, words.STORY_ANIMALS[kind], trait)
    kind = rng.choice(list(words.STORY_PEOPLE))
    fixed, home = words.STORY_PEOPLE[kind]
    return Person(kind, name, fixed or gender, home, trait)


def cast(rng: random.Random) -> tuple[Person, Person]:
    hero = make_person(rng, words.TRAITS)
    friend = make_person(rng, words.FRIEND_TRAITS, hero.gender)
    while friend.kind == hero.kind and not (friend.name and hero.name) or friend.name and friend.name == hero.name:
        friend = make_person(rng, words.FRIEND_TRAITS, hero.gender)
    return hero, friend


def person_slots(person: Person, prefix: str, said: str) -> Slots:
    he, him, his = PRONOUNS[person.gender]
    return {
        prefix + "he": he,
        prefix + "him": him,
        prefix + "his": his,
        said: person.calling(),
        prefix + "kind": person.kind,
        prefix + "someone": person.someone(),
        prefix + "what": f"a {person.trait} {person.kind}",
    }


def make_slots(rng: random.Random, hero: Person, friend: Person, plot: dict) -> Slots:
    thing, place = rng.choice(words.THINGS), rng.choice(list(words.PLACES))
    look = rng.choice(words.LOOKS)
    preposition, spots = words.PLACES[place]
    spot, spot2 = rng.sample(spots, 2)
    relative = rng.choice(list(RELATIVES))
    skill = rng.choice(list(words.SKILLS))
    slots: Slots = {
        "obj": thing,
        "look": look,
        "thing": f"{look} {thing}",
        "place": place,
        "at": f"{preposition} the {place}",
        "spot": spot,
        "spot2": spot2,
        "relative": relative,
        "rhim": RELATIVES[relative],
        "food": rng.choice(words.FOODS),
        "plant": rng.choice(words.PLANTS),
        "skill": skill,
        "trait": hero.trait,
    }
    slots |= person_slots(hero, "", "hero") | person_slots(friend, "f", "friend")
    slots["who"] = [hero.calling(), f"the {hero.trait} {hero.kind}" if hero.name else hero.calling()]
    slots["intro"] = hero.someone() if hero.name else f"a {hero.trait} {hero.kind}"
    slots["fintro"] = friend.someone()
    slots["home"], slots["hers"] = hero.home, "hers" if hero.gender == "f" else "his"
    to = "to the" if preposition in ("in", "at", "by", "on") else f"{preposition} the"
    slots["toplace"] = f"{to} {place}"
    for name, choices in plot.get("picks", {}).items():
        chosen = rng.choice(choices.split("|"))
        slots[name] = chosen
        slots["the" + name] = "the " + chosen.split(" ", 1)[-1]
    return slots


def requests(rng: random.Random, hero: Person, friend: Person, plot: dict, slots: Slots) -> list[str]:
    """Everything a reader could have asked for to be told this story."""
    thing = f"a {slots['obj']}"
    heroes = [f"a {hero.kind}", f"a {hero.trait} {hero.kind}"]
    if hero.name:
        heroes += [f"a {hero.kind} named {hero.name}", f"a {hero.kind} called {hero.name}", hero.name]
    in_text = "$obj" in " ".join(plot["beats"]) or "$thing" in " ".join(plot["beats"])
    about = heroes * 3 + [
        f"a {hero.kind} and a {friend.kind}",
        f"{rng.choice(heroes)} and a {friend.trait} {friend.kind}",
    ]
    if hero.name and friend.name:
        about += [f"{hero.name} and {friend.name}"] * 2
    if in_text:
        about += [f"{who} and {thing}" for who in heroes] * 2 + [thing] * 2
    if "$SETTING" in plot["beats"]:
        about += [f"{rng.choice(heroes)} {slots['at']}"] * 2
    topics = [expand(rng, topic, slots | {"someone": rng.choice(heroes)}) for topic in plot["topics"]]
    return [expand(rng, wish) for wish in about + topics * 2]


def asks_about(hero: Person, friend: Person) -> list[Ask]:
    """Questions that fit every plot. Those about a name need one: "Who is the fox?" is no question."""
    asks = [
        (
            "{Who is the story about|Who was the story about|Who is in the story}?",
            f"The story is about {hero.someone()}.",
        ),
        ("Where did $hero live?", f"$Hero lived {hero.home}."),
    ]
    if friend.name:
        asks.append(("{Who is|Who was} $friend?", "$Friend is $fwhat."))
    if hero.name:
        asks.append(("{Who is|Who was} $hero?", "$Hero is $what."))
        asks.append(("What {was|is} $his name?", "$His name was $hero."))
        if hero.kind != friend.kind:
            asks.append(("What was the name of the $kind?", "The name of the $kind was $hero."))
    return asks


def asks_about_text(plot: dict, slots: Slots, text: str, mood: str, weather: str) -> list[Ask]:
    """Questions about what this telling says; its alternatives may leave a thing out."""
    colour_told = slots["look"] not in words.NO_COLOURS and slots["thing"] in text
    asks = [ask for ask in plot["asks"] if colour_told or "colour" not in ask[0]]
    if slots["ENDING"] in text:
        asks.append(("How did {it|the story} end?", f"At the end, $hero was {mood}."))
        asks.append(("{How did $hero feel|How did $hero feel at the end}?", f"$Hero felt {mood}."))
    if slots["WEATHER"] and slots["WEATHER"] in text:
        asks.append(("{What was the weather like|How was the weather}?", f"It was {weather}."))
    if slots["SETTING"] in text:
        asks.append(("Where did $hero go?", "$Hero went $toplace."))
    return asks


def asked(rng: random.Random, question: str, slots: Slots) -> str:
    """Readers also say "she" when they mean the hero."""
    question = question.replace("did $hero", "did {$hero|$hero|$hero|$he}")
    return capital(expand(rng, question.replace("helped $hero", "helped {$hero|$hero|$him}"), slots))


def make_story(rng: random.Random, want_held_out: bool) -> Story:
    """One story. Training never sees the held-out pairs; held-out stories are drawn with one."""
    while True:
        plot = rng.choice(plots.PLOTS)
        hero, friend = cast(rng)
        slots = make_slots(rng, hero, friend, plot)
        if held_out(hero, slots["obj"], slots["place"]) == want_held_out:
            break
    mood = rng.choice(plot.get("moods", list(phrases.ENDINGS)))
    slots["ENDING"] = expand(rng, rng.choice(phrases.ENDINGS[mood]), slots)
    slots["CLOSING"] = expand(rng, rng.choice(phrases.CLOSINGS), slots)
    slots["SETTING"] = expand(rng, rng.choice(phrases.SETTINGS), slots)
    weather = rng.choice(list(words.WEATHER))
    slots["WEATHER"] = expand(rng, rng.choice(words.WEATHER[weather]) + "." if rng.random() < 0.6 else "", slots)
    # "Rusty was a shy fox" needs a name.
    openings = phrases.OPENINGS if hero.name else phrases.OPENINGS[:-1]
    beats = [rng.choice(openings), rng.choice(phrases.LIKES), *plot["beats"]]
    text = " ".join(beat for beat in [expand(rng, beat, slots) for beat in beats] if beat)
    asks = asks_about(hero, friend) + 2 * asks_about_text(plot, slots, text, mood, weather)
    known = [(asked(rng, question, slots), capital(expand(rng, answer, slots))) for question, answer in asks]
    return Story(text, known, requests(rng, hero, friend, plot, slots))
