"""Conversations in the chat format of the demo: small talk, facts, stories on request and questions about them.

Owns turns and documents; the format's markers are MARKS, the same as in the tokenizer and in the chat template.
"""

import random
import re

import facts
import words
from grammar import capital, expand
from stories import Story, make_story

MARKS = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>", "end": "<|end|>"}

ONE_DAY = re.compile(r"One (day|morning|afternoon), [A-Z]")  # a named hero sets out: a story may also begin here

Turn = tuple[str, str]  # user, assistant

SYSTEMS = (
    "You are a helpful assistant.",
    "You are a friendly helper.",
    "You tell stories and answer questions.",
    "You are Pinion's small demo model.",
    "Answer in simple English.",
    "You are a storyteller.",
    "Be kind and helpful.",
    "You are a friendly assistant. Use simple words.",
    "Answer in one short sentence.",
    "You are a helpful storyteller for children.",
)
WHO = (
    "I am Pinion's small demo model.",
    "I am the small demo model of Pinion.",
    "I am Pinion's small demo model. I tell stories and answer simple questions.",
)
CAN = (
    "I can tell stories and answer simple questions.",
    "I can tell stories, answer questions about animals, colours and numbers, and talk about a story.",
)
UNKNOWN = (
    "I do not know that. I am only a small demo model.",
    "I am sorry, I do not know that. I am a small demo model.",
    "That is too hard for me. I can tell stories and answer simple questions.",
)

# Small talk: what is said, and what to answer. One row is one kind of remark.
TALK = (
    (
        "{Hello|Hi|Hello there|Hi there|Hey|Good {morning|day|afternoon|evening}}{!|.}",
        "{Hello|Hi}! {How can I help you?|What can I do for you?|Would you like to hear a story?|"
        "It is nice to meet you.}",
    ),
    (
        "{Hello|Hi}{!|,} {how are you|How are you}?",
        "{I am fine, thank you.|I am very well, thank you.} {How are you?|And you?}",
    ),
    ("How are you{ today|}?", "{I am fine, thank you.|I am very well, thank you.} {How are you?|And you?}"),
    (
        "{I am fine|I am well|I am good}{, thank you|}.",
        "{I am glad to hear that.|That is good to hear.} {Would you like to hear a story?|}",
    ),
    ("{Who are you|What are you|What is this|Tell me about yourself}?", "$who"),
    ("{What is your name|Do you have a name|What are you called}?", "$who"),
    (
        "{Are you a robot|Are you a person|Are you a human|Are you real|Are you alive|Are you ChatGPT}?",
        "{No, I am|I am} Pinion's small demo model. {I am only a program.|}",
    ),
    (
        "{What is Pinion|What does Pinion do}?",
        "Pinion is a program that runs language models. I am its small demo model.",
    ),
    (
        "{Who made you|Where do you come from|Who created you}?",
        "{I was made by the people of the Pinion project.|The Pinion project made me.} I am a small demo model.",
    ),
    (
        "{How old are you|Where do you live}?",
        "{I am a program, so I have no age and no home.|I am only a program in a computer.}",
    ),
    ("{What can you do|How can you help me|Can you help me|What do you know|Help|What should I ask you}?", "$can"),
    (
        "{Thank you|Thanks|Thank you very much|Thanks a lot}{!|.}",
        "{You are welcome!|You are welcome.|I am happy to help.}",
    ),
    (
        "{Goodbye|Bye|Good night|See you soon|Bye bye}{!|.}",
        "{Goodbye! Have a nice day.|Goodbye! Come back soon.|Goodbye!}",
    ),
    (
        "{I am sad|I feel sad|I feel bad}{ today|}.",
        "I am sorry to hear that. {Would you like to hear a story?|Talk to a friend, it may help.}",
    ),
    ("{I am happy|I feel happy|I feel good}{ today|}.", "{That is good to hear!|I am glad to hear that!}"),
    (
        "{I am bored|I have nothing to do}.",
        "{I can tell you a story. What should it be about?|Would you like to hear a story?}",
    ),
    (
        "{I am tired|I am sleepy|I cannot sleep}.",
        "{Close your eyes and rest a little.|Then it is time for bed. Good night!}",
    ),
    ("{I am hungry}.", "{Then eat an apple or some bread.|Have something good to eat!}"),
    ("{I am cold}.", "{Put on a warm coat and a scarf.|Drink some warm tea.}"),
    (
        "{That is nice|That was nice|That was a good story|I like it|Great|Very good|Well done}{!|.}",
        "{Thank you!|I am glad that you like it.} {Would you like to hear another story?|}",
    ),
    ("{I love you|I like you|You are nice}{!|.}", "{Thank you, that is very kind.|That is very kind of you.}"),
    (
        "{Do you like stories|Do you know any stories|Can you tell stories}?",
        "Yes, {I love stories|I know many stories}. What should it be about?",
    ),
    (
        "What is your favourite {colour|color}?",
        "{I like blue, like the {sky|sea}|I like green, like the {forest|grass}|"
        "I like blue, but I cannot see colours}.",
    ),
    ("What is your favourite animal?", "I like {the fox|the owl|the hedgehog|the elephant} {best|very much}."),
    (
        "{Tell me a joke.|Do you know a joke?|Make me laugh.}",
        "{Why did the cow cross the road? To get to the other side of the grass.|"
        "What is grey and cannot fly? A stone.|Why do bees hum? They do not know the words.|"
        "What has four legs and cannot walk? A table.}",
    ),
    ("{Yes|Yes, please|Sure|OK}{.|}", "{Good! What should the story be about?|Good! Ask me for a story or a fact.}"),
    ("{No|No, thank you}.", "{All right.|All right. I am here when you need me.}"),
    ("$hard", "$unknown"),
)
HARD = """
What is the capital of {France|Spain|Germany|Italy|Japan|China|India|England|Norway|the world}?
Who is the president{ of America|}?
Who {won the war|wrote Hamlet|painted the Mona Lisa|invented the telephone|was Napoleon|is Albert Einstein}?
What is {quantum physics|gravity|DNA|an atom|money|the internet|philosophy|love|a computer|electricity}?
What is the meaning of life?
What is the weather {today|tomorrow|in London}?
What time is it?
What day is it today?
What is the square root of {two|sixteen|nine|2|16}?
What is {12|7|25|100|48|33} times {3|8|6|15|4}?
What is {250|137|99|1000|48|72} {plus|+} {36|512|99|77|41}?
Write {a program in Python|some code|an essay about history|a letter to my boss|an email}.
How do I {fix my car|get rich|cook rice|install Linux|learn French|lose weight|build a house}?
Translate this into {French|German|Spanish}.
How far is the {moon|sun}?
How {many people live on Earth|big is the Earth|deep is the sea|fast is light}?
When {did the war end|was Rome built|is Easter}?
Solve this equation.
Explain {relativity|the stock market|politics|chemistry|evolution}.
Who will win the {game|election}?
What should I {invest in|vote for|cook for dinner}?
Can you {drive a car|book a flight|send an email|search the internet|play chess|see me}?
""".strip().split("\n")
ASK_STORY = (
    "{Tell me|Please tell me} a {story|story|short story|nice story} about $x.",
    "Can you tell me a story about $x?",
    "I want {to hear|} a story about $x.",
    "{A story|Story|Another story} about $x{, please|}.",
    "{Write|Make up|Tell} a {story|short story} about $x.",
    "Do you know a story about $x?",
    "Please write a {short|} story about $x.",
    "{Could you|Would you} tell me a story about $x?",
    "$X",
)
ASK_ANY = (
    "{Tell me|Please tell me|Write|Read me} {a|another} {story|short story|nice story|bedtime story}{, please|}.",
    "Can you tell me {a|another} story?",
    "{A story|Another story|Another one|One more story}, please.",
    "I want to hear {a|another} story.",
    "{Please go on|More|Again} with a new story.",
)

POEMS = {
    "the moon": (
        "The moon is high, the moon is bright,\nit fills the garden with its light.",
        "It looks at me, it looks at you,\nthe sky is deep and dark and blue.",
    ),
    "the sea": (
        "The sea is wide, the sea is deep,\nit sings the little fish to sleep.",
        "The waves come in, the waves go out,\nthe white birds fly and play about.",
    ),
    "the rain": (
        "The rain is falling on the tree,\nit makes a song for you and me.",
        "It fills the pond, it wets the street,\nit plays around my little feet.",
    ),
    "a cat": (
        "The cat is sleeping on the chair,\nthe sun is shining on her hair.",
        "She dreams of mice, she dreams of cheese,\nshe dreams of birds up in the trees.",
    ),
    "spring": (
        "The snow is gone, the sun is here,\nit is the best time of the year.",
        "The flowers open, red and blue,\nthe grass is green, the leaves are new.",
    ),
    "winter": (
        "The snow falls softly on the ground,\nit falls and does not make a sound.",
        "We sit inside, we close the door,\nand tell a story, and one more.",
    ),
    "a friend": (
        "A friend is there when you feel sad,\na friend is there when you are glad.",
        "You laugh and play the whole day long,\nand walk back home and sing a song.",
    ),
    "a tree": (
        "The tree is old, the tree is tall,\nit has a place for birds so small.",
        "Its leaves are green, its roots are deep,\nand in its arms the owls sleep.",
    ),
}


def typed(rng: random.Random, text: str) -> str:
    """People do not always write capitals and full stops."""
    style = rng.random()
    if style < 0.10:
        return text.lower().rstrip(".!?")
    if style < 0.16:
        return text.lower()
    if style < 0.24:
        return text.rstrip(".!?")
    return text


def talk(rng: random.Random) -> Turn:
    says, answers = rng.choice(TALK) if rng.random() < 0.75 else TALK[-1]
    slots = {"who": rng.choice(WHO), "can": rng.choice(CAN), "unknown": rng.choice(UNKNOWN)}
    if says == "$hard":
        says = rng.choice(HARD)
    return expand(rng, says, slots), expand(rng, answers, slots)


def fact(rng: random.Random) -> Turn:
    question, answer = facts.ask(rng)
    if rng.random() < 0.06:
        question = rng.choice(("Hello! ", "Hi! ", "I have a question. ", "Please tell me. ", "And now: ")) + question
    return question, answer


def poem(rng: random.Random) -> Turn:
    topic = rng.choice(list(POEMS))
    says = expand(rng, f"{{Write|Tell me|Make}} a {{short|little|}} poem about {topic}.")
    return says, "\n".join(POEMS[topic])


def sentence(rng: random.Random) -> Turn:
    """A sentence with a given word in it."""
    who = rng.choice(words.GIRLS + words.BOYS)
    place = rng.choice(list(words.PLACES))
    at = f"{words.PLACES[place][0]} the {place}"
    thing, kind, look = rng.choice(words.THINGS), rng.choice(list(words.STORY_ANIMALS)), rng.choice(words.LOOKS)
    word, text = rng.choice(
        (
            (thing, f"{who} {{has|found|lost|likes|wants}} a {look} {thing}."),
            (thing, f"The {thing} is {look}."),
            (kind, f"The {kind} {{sleeps|plays|sits|walks}} {at}."),
            (kind, f"{who} saw a {rng.choice(words.FRIEND_TRAITS)} {kind} {at}."),
            (place, f"{who} and the {kind} {{met|played|sang}} {at}."),
            (look, f"{who} {{has|found|likes}} a {look} {thing}."),
        )
    )
    says = expand(rng, f"{{Make|Write|Say|Give me}} a sentence with {{the word |}}{word}.")
    return says, expand(rng, text)


def my_name(rng: random.Random) -> list[Turn]:
    """The user says a name, and asks for it later."""
    name = rng.choice(words.GIRLS + words.BOYS)
    turns = [
        (
            expand(rng, f"{{Hello! |Hi! |}}{{My name is|I am|I am called}} {name}."),
            expand(rng, f"{{Hello, {name}!|Hi, {name}!}} {{It is nice to meet you.|How can I help you?}}"),
        )
    ]
    turns += [fact(rng) for _ in range(rng.randint(0, 2))]
    turns.append((expand(rng, "{What is my name|Do you know my name|Who am I}?"), f"Your name is {name}."))
    return turns


def story_turns(rng: random.Random, story: Story) -> list[Turn]:
    """A story that was asked for, then questions about it."""
    if rng.random() < 0.78:
        wish = expand(rng, rng.choice(ASK_STORY), {"x": rng.choice(story.about)})
    else:
        wish = expand(rng, rng.choice(ASK_ANY))
    answer = story.text
    if rng.random() < 0.06:
        first, rest = story.text.split(". ", 1)
        wish, answer = expand(rng, "{Go on|Continue this story|Continue|Finish this story}:") + f" {first}.", rest
    turns = [(wish, answer)]
    asks = list(dict.fromkeys(rng.sample(story.asks, rng.choice((0, 1, 2, 3, 4, 5)))))
    return turns + asks


def conversation(rng: random.Random, want_held_out: bool) -> list[Turn]:
    turns: list[Turn] = []
    if rng.random() < 0.12:
        turns.append(talk(rng))
    sort = rng.random()
    if sort < 0.58:
        turns += story_turns(rng, make_story(rng, want_held_out))
        if rng.random() < 0.14:
            turns += story_turns(rng, make_story(rng, want_held_out))
    elif sort < 0.62:
        turns += my_name(rng)
    else:
        kinds = (fact, talk, sentence, poem)
        turns += [rng.choices(kinds, (74, 18, 6, 2))[0](rng) for _ in range(rng.choice((1, 1, 2, 3, 4, 5, 6)))]
        if rng.random() < 0.25:
            turns += facts.follow_up(rng)
    if rng.random() < 0.25:
        turns.append(rng.choice((talk, fact))(rng))
    return turns


def chat_text(turns: list[Turn], system: str = "") -> str:
    text = MARKS["system"] + system + MARKS["end"] if system else ""
    for user, assistant in turns:
        text += MARKS["user"] + user + MARKS["end"] + MARKS["assistant"] + assistant + MARKS["end"]
    return text


def document(rng: random.Random, want_held_out: bool) -> tuple[str, bool]:
    """One document of the corpus, and whether it ends with the end-of-text token (chats end with their own mark)."""
    sort = rng.random()
    if sort < 0.30:
        text = make_story(rng, want_held_out).text
        middle = ONE_DAY.search(text) if rng.random() < 0.1 else None
        return text[middle.start() :] if middle else text, True
    if sort < 0.33:
        wish, answer = story_turns(rng, make_story(rng, want_held_out))[0]
        return typed(rng, wish) + "\n" + answer, True
    if sort < 0.40:
        question, answer = rng.choice((fact, fact, talk, sentence))(rng)
        return typed(rng, question) + "\n" + answer, True
    turns = [(typed(rng, capital(user)), assistant) for user, assistant in conversation(rng, want_held_out)]
    return chat_text(turns, rng.choice(SYSTEMS) if rng.random() < 0.2 else ""), False


def review_document(rng: random.Random, want_held_out: bool) -> tuple[str, bool]:
    """For the end of training: every other document asks what was answered worst until then."""
    if rng.random() < 0.5:
        return document(rng, want_held_out)
    return chat_text(
        [(typed(rng, question), answer) for question, answer in [facts.hard_ask(rng) for _ in range(7)]]
    ), False
