"""The words of the demo's small world: people, animals, places, things. Data only."""

GIRLS = (
    "Mia Lily Anna Emma Rose Ella Zoe Nora Ruby Clara Lucy Maya Ivy Eva Alice Sara Grace Molly Daisy Hanna Lena "
    "Amy Jane Kate Nina Poppy Tina Iris Flora Mary"
).split()
BOYS = (
    "Tom Ben Max Leo Sam Jack Finn Noah Oscar Tim Peter Adam Luke Henry Hugo Felix Theo Paul Joe Will Nick Otto "
    "Jonas Fred Dan Eric Mark Toby Simon Ali"
).split()
ANIMAL_NAMES = (
    "Rusty Pip Coco Bella Momo Tilly Bruno Pepper Hazel Biscuit Luna Milo Nutmeg Olive Rocky Sunny Teddy "
    "Willow Ziggy Bobo Dot Fern Ginger Honey Jasper Kiki Pebble Rolo Snowy Toffee"
).split()

# kind: (sound, home, food, baby, legs). None: not asked about.
ANIMALS = {
    "cat": ("meow", "a house", "fish", "kitten", 4),
    "dog": ("woof", "a kennel", "bones and meat", "puppy", 4),
    "cow": ("moo", "a barn", "grass", "calf", 4),
    "horse": ("neigh", "a stable", "hay", "foal", 4),
    "pig": ("oink", "a sty", "corn", "piglet", 4),
    "sheep": ("baa", "a meadow", "grass", "lamb", 4),
    "goat": ("maa", "a farm", "grass and leaves", "kid", 4),
    "duck": ("quack", "a pond", "bugs and plants", "duckling", 2),
    "hen": ("cluck", "a coop", "seeds", "chick", 2),
    "frog": ("croak", "a pond", "flies", "tadpole", 4),
    "lion": ("roar", "the grassland", "meat", "cub", 4),
    "bear": ("growl", "a cave", "berries and honey", "cub", 4),
    "wolf": ("howl", "a den", "meat", "pup", 4),
    "fox": ("yip", "a den", "berries and mice", "cub", 4),
    "mouse": ("squeak", "a small hole", "seeds and cheese", None, 4),
    "owl": ("hoot", "a hollow tree", "mice", "owlet", 2),
    "bee": ("buzz", "a hive", "nectar", None, 6),
    "bird": ("tweet", "a nest", "seeds and worms", "chick", 2),
    "snake": ("hiss", "a hole", "mice", None, 0),
    "rabbit": (None, "a burrow", "grass and carrots", "kit", 4),
    "squirrel": (None, "a tree", "nuts", "kit", 4),
    "elephant": (None, "the grassland", "grass and leaves", "calf", 4),
    "monkey": (None, "the jungle", "bananas", None, None),
    "turtle": (None, "a pond", "water plants", None, 4),
    "penguin": (None, "the cold coast", "fish", "chick", 2),
    "deer": (None, "the forest", "leaves and grass", "fawn", 4),
    "hedgehog": (None, "a garden", "bugs and worms", "hoglet", 4),
    "spider": (None, "a web", "flies", None, 8),
    "ant": (None, "an ant hill", "seeds and crumbs", None, 6),
    "bat": (None, "a cave", "bugs", "pup", 2),
    "donkey": ("hee-haw", "a stable", "hay", "foal", 4),
    "goose": ("honk", "a farm", "grass", "gosling", 2),
    "camel": (None, "the desert", "dry grass", "calf", 4),
    "kangaroo": (None, "the grassland", "grass", "joey", None),
    "tiger": ("roar", "the jungle", "meat", "cub", 4),
    "giraffe": (None, "the grassland", "leaves", "calf", 4),
    "zebra": (None, "the grassland", "grass", "foal", 4),
    "dolphin": (None, "the sea", "fish", "calf", 0),
    "whale": (None, "the sea", "very small sea animals", "calf", 0),
    "snail": (None, "a garden", "leaves", None, 0),
    "panda": (None, "the bamboo forest", "bamboo", "cub", 4),
    "parrot": ("squawk", "the jungle", "seeds and fruit", "chick", 2),
    "eagle": (None, "a high nest", "fish and mice", "eaglet", 2),
    "seal": (None, "the cold sea", "fish", "pup", 0),
    "beaver": (None, "a lodge of sticks", "bark and leaves", "kit", 4),
    "mole": (None, "a tunnel", "worms", "pup", 4),
    "swan": (None, "a lake", "water plants", "cygnet", 2),
    "badger": (None, "a den", "worms and roots", "cub", 4),
}
FLIES = ("duck", "owl", "bee", "bird", "bat", "goose", "parrot", "eagle", "swan")
SWIMS = ("duck", "frog", "turtle", "penguin", "goose", "dolphin", "whale", "seal", "beaver", "swan")
BIGGER = (
    "ant",
    "bee",
    "mouse",
    "frog",
    "squirrel",
    "rabbit",
    "fox",
    "sheep",
    "pig",
    "horse",
    "camel",
    "elephant",
    "whale",
)

# Animals that take part in stories, and where each of them lives there.
STORY_ANIMALS = {
    "cat": "in a cosy house",
    "dog": "in a small kennel",
    "duck": "beside a pond",
    "hen": "on a small farm",
    "frog": "beside a green pond",
    "lion": "in a sunny grassland",
    "bear": "in a warm cave",
    "wolf": "in a deep den",
    "fox": "in a den under a tree",
    "mouse": "in a tiny hole",
    "owl": "in a hollow tree",
    "bee": "in a busy hive",
    "bird": "in a nest in a tall tree",
    "rabbit": "in a burrow under the hill",
    "squirrel": "in an old oak tree",
    "elephant": "near a wide river",
    "monkey": "in the green jungle",
    "turtle": "beside a quiet lake",
    "penguin": "on a snowy shore",
    "deer": "at the edge of the forest",
    "hedgehog": "in a pile of leaves",
    "goat": "on a rocky hill",
    "pig": "in a muddy yard",
    "sheep": "in a wide meadow",
    "horse": "in a red stable",
    "cow": "in a big barn",
    "donkey": "in an old stable",
    "goose": "on a quiet farm",
    "panda": "in a bamboo forest",
    "tiger": "in the green jungle",
    "mole": "in a long tunnel",
    "beaver": "beside a river",
    "badger": "in a deep den",
    "parrot": "in a tall palm tree",
    "snail": "in a green garden",
    "bat": "in a dark cave",
    "swan": "on a blue lake",
    "giraffe": "in a sunny grassland",
    "zebra": "in a sunny grassland",
    "camel": "in the hot desert",
    "kangaroo": "in a dry grassland",
    "ant": "in a small ant hill",
    "spider": "in a silver web",
}
# Heroes that are neither children nor animals: kind -> (gender or None for either, home).
STORY_PEOPLE = {
    "robot": (None, "in a busy workshop"),
    "dragon": (None, "on a high mountain"),
    "giant": ("m", "in a stone castle"),
    "wizard": ("m", "in a tall tower"),
    "witch": ("f", "in a crooked house"),
    "princess": ("f", "in a white castle"),
    "prince": ("m", "in a white castle"),
    "king": ("m", "in a golden palace"),
    "queen": ("f", "in a golden palace"),
    "pirate": (None, "on an old ship"),
    "fairy": ("f", "inside a flower"),
    "farmer": (None, "on a small farm"),
    "baker": (None, "above a small bakery"),
    "sailor": (None, "near the harbour"),
    "unicorn": (None, "in a magic forest"),
    "snowman": ("m", "in a white garden"),
    "knight": (None, "in an old castle"),
    "fisherman": ("m", "in a hut by the sea"),
    "painter": (None, "in a bright little house"),
    "ghost": (None, "in an old house"),
    "monster": (None, "under a bridge"),
    "teacher": (None, "in a quiet village"),
    "doctor": (None, "in a small town"),
    "elf": (None, "in the deep forest"),
}
CHILD_HOMES = (
    "in a small house near the river",
    "in a little village",
    "in a big town",
    "in a white house on a hill",
    "on a farm",
    "in a cosy cottage",
    "in a house with a red roof",
    "near the sea",
    "in a quiet street",
)

TRAITS = (
    "brave kind shy curious clever cheerful quiet gentle playful careful silly friendly honest patient lazy proud "
    "busy happy little young helpful polite funny small"
).split()
FRIEND_TRAITS = "wise kind old friendly gentle big clever cheerful helpful small young funny quiet".split()

THINGS = (
    "kite ball doll drum hat scarf boat book lantern key bell coin basket blanket button cup whistle shell "
    "feather flute umbrella box ring pencil mirror watch bracelet bucket marble crown spoon mitten boot puppet "
    "puzzle ribbon pillow bottle lamp necklace backpack balloon stone flag"
).split()
LOOKS = "red blue green yellow orange purple pink white brown golden silver shiny old pretty little special".split()
NO_COLOURS = ("shiny", "old", "pretty", "little", "special")

# place: (preposition, hiding spots)
PLACES = {
    "forest": ("in", ["under a pile of leaves", "behind an old tree", "beside a mossy rock", "in a hollow log"]),
    "park": ("in", ["under a bench", "behind the slide", "beside the fountain", "in a flower bed"]),
    "beach": ("at", ["under the sand", "behind a rock", "near the waves", "beside a sand castle"]),
    "river": ("by", ["between two stones", "under the bridge", "in the tall grass", "on the muddy bank"]),
    "lake": ("by", ["in the reeds", "under a little boat", "beside a wet rock", "near the water"]),
    "hill": ("on", ["behind a big stone", "under a bush", "in the tall grass", "beside a lonely tree"]),
    "meadow": ("in", ["in the tall grass", "among the flowers", "under a bush", "beside the fence"]),
    "garden": ("in", ["under the roses", "behind the shed", "between the carrots", "beside the gate"]),
    "market": ("at", ["under a table", "behind a basket of apples", "beside the well", "in an empty box"]),
    "farm": ("on", ["in the hay", "behind the barn", "under the cart", "beside the hen house"]),
    "village": ("in", ["beside the well", "behind the bakery", "under a bench", "near the old gate"]),
    "valley": ("in", ["beside a stream", "under a bush", "behind a big stone", "among the flowers"]),
    "playground": ("at", ["under the slide", "behind the swings", "in the sand box", "beside the fence"]),
    "castle": ("in", ["behind a curtain", "under the stairs", "beside the throne", "in a dusty corner"]),
    "jungle": ("in", ["under a huge leaf", "behind a palm tree", "beside a muddy pool", "among the vines"]),
    "island": ("on", ["under a palm tree", "in the warm sand", "behind a rock", "beside a small cave"]),
    "orchard": ("in", ["under an apple tree", "in a basket", "behind a ladder", "in the long grass"]),
    "pond": ("by", ["in the reeds", "under a lily leaf", "beside a wet log", "in the mud"]),
    "town": ("in", ["under a bench", "behind the shop", "beside the clock tower", "near the school"]),
    "harbour": ("at", ["under a net", "behind a barrel", "beside a small boat", "near the old ropes"]),
    "mountain": ("on", ["in a small cave", "behind a grey rock", "under a pine tree", "beside the path"]),
    "field": ("in", ["in the long grass", "beside the fence", "under a hay stack", "behind a stone wall"]),
}

WEATHER = {
    "sunny": [
        "The sun was shining",
        "It was a warm and sunny day",
        "The sky was blue and bright",
        "It was a sunny day",
    ],
    "windy": ["It was a windy day", "A strong wind was blowing", "The wind was blowing through the trees"],
    "cloudy": ["The sky was full of clouds", "It was a grey and cloudy day", "Big clouds covered the sky"],
    "snowy": ["Snow was falling softly", "It was a cold and snowy day", "White snow covered the ground"],
    "foggy": ["It was a foggy day", "Thick fog covered the land", "The air was grey with fog"],
    "rainy": ["A light rain was falling", "It was a rainy day", "Soft rain was falling from the sky"],
}

FOODS = (
    "an apple|a loaf of bread|a carrot|a piece of cheese|a honey cake|a warm pie|a basket of berries|a bowl of soup|"
    "a pear|a bag of nuts|a cookie|a pancake|a sweet bun|a plum|a bunch of grapes"
).split("|")
PLANTS = "sunflower pumpkin rose tulip strawberry bean tomato melon carrot daisy".split()
SKILLS = {
    "swim": "swimming",
    "sing": "singing",
    "dance": "dancing",
    "paint": "painting",
    "read": "reading",
    "climb trees": "climbing",
    "ride a bike": "riding",
    "bake bread": "baking",
    "skate": "skating",
    "play the flute": "playing",
    "write letters": "writing",
    "jump over the stream": "jumping",
    "fly a kite": "flying",
    "juggle": "juggling",
    "fish": "fishing",
    "sew": "sewing",
    "whistle": "whistling",
    "row a boat": "rowing",
}

OPPOSITES = [
    tuple(pair.split("/"))
    for pair in (
        "big/small hot/cold up/down happy/sad day/night fast/slow old/new open/closed full/empty light/dark high/low "
        "hard/soft "
        "long/short wet/dry clean/dirty good/bad early/late loud/quiet near/far thick/thin strong/weak rich/poor "
        "left/right first/last black/white in/out on/off over/under front/back sweet/sour deep/shallow wide/narrow "
        "rough/smooth easy/difficult true/false awake/asleep brave/afraid push/pull stop/go give/take win/lose "
        "begin/end love/hate summer/winter north/south east/west inside/outside above/below before/after always/never "
        "more/less yes/no "
        "laugh/cry buy/sell hello/goodbye friend/enemy question/answer top/bottom"
    ).split()
]

COLOURS = {
    "grass": "green",
    "the sky": "blue",
    "snow": "white",
    "the sun": "yellow",
    "a banana": "yellow",
    "a strawberry": "red",
    "a tomato": "red",
    "a lemon": "yellow",
    "a carrot": "orange",
    "a pumpkin": "orange",
    "coal": "black",
    "a leaf": "green",
    "a frog": "green",
    "an elephant": "grey",
    "milk": "white",
    "chocolate": "brown",
    "a polar bear": "white",
    "a flamingo": "pink",
    "a pig": "pink",
    "a crow": "black",
    "a cucumber": "green",
    "a plum": "purple",
    "the sea": "blue",
    "a cloud": "white",
    "mud": "brown",
    "a cherry": "red",
    "a pea": "green",
    "corn": "yellow",
    "salt": "white",
    "a swan": "white",
    "an orange": "orange",
    "a fire engine": "red",
    "the night sky": "black",
    "blood": "red",
    "a mouse": "grey",
    "a bear": "brown",
    "a fox": "red",
    "a duckling": "yellow",
    "sugar": "white",
    "a tree trunk": "brown",
}
KINDS_OF = {
    "fruit": "apple pear banana cherry plum strawberry orange lemon melon grape peach".split(),
    "vegetable": "carrot potato onion cabbage pea bean cucumber pumpkin".split(),
    "animal": "fox bear horse rabbit lion duck whale camel".split(),
    "toy": "doll kite ball puppet puzzle".split(),
    "colour": "red blue green yellow purple pink brown".split(),
    "flower": "rose tulip daisy sunflower lily".split(),
    "tool": "hammer saw spade ladder".split(),
}
USES = {
    "an umbrella": "stay dry in the rain",
    "a key": "open a door",
    "a spoon": "eat soup",
    "a pencil": "write and draw",
    "a bed": "sleep",
    "a lamp": "make light",
    "a boat": "cross the water",
    "a broom": "sweep the floor",
    "a hammer": "hit nails",
    "a clock": "tell the time",
    "a cup": "drink",
    "a kite": "play in the wind",
    "a bucket": "carry water",
    "a book": "read stories",
    "a scarf": "keep warm",
    "a ladder": "climb up high",
    "soap": "wash your hands",
    "a saw": "cut wood",
    "a needle": "sew",
    "an oven": "bake bread",
    "a towel": "get dry",
    "scissors": "cut paper",
    "a drum": "make music",
    "a map": "find the way",
    "a brush": "paint a picture",
}
SENSES = {
    "see": "eyes",
    "hear": "ears",
    "smell": "nose",
    "taste": "tongue",
    "walk": "legs",
    "bite": "teeth",
    "hold things": "hands",
    "think": "head",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November December").split()
SEASONS = "spring summer autumn winter".split()
SEASON_FACTS = {
    "spring": "the flowers begin to grow",
    "summer": "it is warm and sunny",
    "autumn": "the leaves turn red and fall",
    "winter": "it is cold and it often snows",
}
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()
