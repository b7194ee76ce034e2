"""The plots of the demo's stories: beats with alternatives, questions with answers, and what a reader may ask for.

Data only, in the notation of grammar.py. The slots are filled by stories.py: $hero, $friend and their pronouns
($he $him $his, $fhe $fhim $fhis), $thing ("red kite"), $obj ("kite"), $place, $food, $plant, $skill and the picks;
$SETTING, $WEATHER, $ENDING and $CLOSING are whole sentences of phrases.py and words.py.
"""

PLOTS = [
    {
        "name": "lost",
        "moods": ["happy", "glad"],
        "topics": ["a lost $obj", "losing something", "$someone who lost $his $obj"],
        "beats": [
            ("$Hero had a $thing. {It was a gift from $his $relative.|$He loved it very much.|$He took it "
             "everywhere.|It was $his favourite $obj.}"),
            "$SETTING", "$WEATHER",
            ('{But then|Suddenly|After a while}, $he {saw|noticed} that {the|$his} $obj was gone. {"Oh no! Where is '
             'my $obj?" {cried|said} $hero.|$Hero was very sad.|$Hero began to cry.}'),
            ("{$He looked $spot2, but it was not there.|$He looked everywhere, but $he could not find it.|First $he "
             "looked $spot2. The $obj was not there.}"),
            ('{Then|Soon|Just then} $fintro came {by|along}. "{Why are you sad|What is wrong|What happened}?" asked '
             '$friend. "I {have lost|lost|cannot find} my $obj," said $hero.'),
            '"{Do not worry|Do not cry}. {I will help you|We will look together|Let us look together}," said $friend.',
            ('They looked {for a long time|here and there|together}. {At last|In the end}, $friend {found the '
             '$obj|saw the $obj|found it} $spot. {"Here it is!" {cried|said} $friend.|"Look! There it is!" '
             '{cried|said} $friend.}'),
            ('{"Thank you!" said $hero.|"Thank you, $friend," said $hero.|$Hero thanked $friend.|$Hero hugged '
             '$friend.} $ENDING'),
            "$CLOSING",
        ],
        "asks": [
            ("What did $hero lose?", "$Hero lost $his $obj."),
            ("Who found the $obj?", "$Friend found the $obj."),
            ("Where was the $obj?", "The $obj was $spot."),
            ("Who helped $hero?", "$Friend helped $hero."),
            ("What colour was the $obj?", "The $obj was $look."),
        ],
    },
    {
        "name": "found",
        "topics": ["finding a $obj", "being honest", "$someone who found a $obj"],
        "beats": [
            "$SETTING", "$WEATHER",
            ('{There|On the way}, $he {found|saw} a $thing $spot. {"What a {pretty|nice|lovely} $obj!" said '
             '$hero.|It was very pretty.|"Who lost this $obj?" said $hero.}'),
            ('{$Hero wanted to keep it.|$He wanted to take it home.|$He liked it very much.} But {then $he thought, '
             '"{Someone must be sad without it|This is not mine|Someone may be looking for it}."|$he knew that it '
             'was not $hers.}'),
            "So $hero {asked everyone $at|walked on and asked around|went to look for the owner}.",
            ('{Soon|After a while|At last} $he met $fintro. $Friend {was crying|looked very sad|was looking for '
             'something}. "{I have lost|I lost} my $obj," said $friend.'),
            ('"{Is this your $obj|Is this it}?" asked $hero. "Yes! {That is my $obj|You found it}! {Thank you|Thank '
             'you so much}!" {cried|said} $friend.'),
            "{$Friend gave $hero $food.|To say thank you, $friend gave $hero $food.} $ENDING",
            "{$CLOSING|It is good to be honest.|It feels good to do the right thing.}",
        ],
        "asks": [
            ("What did $hero find?", "$Hero found a $thing."),
            ("Whose $obj was it?", "The $obj belonged to $friend."),
            ("Where was the $obj?", "The $obj was $spot."),
            ("What did $friend give $hero?", "$Friend gave $hero $food."),
        ],
    },
    {
        "name": "learn",
        "topics": ["learning to $skill", "trying again", "$someone who wanted to $skill"],
        "beats": [
            ("{More than anything, $hero wanted to learn to $skill.|$Hero had one big wish. $He wanted to learn to "
             "$skill.|$Hero dreamed of learning to $skill.}"),
            "$SETTING",
            ('{$He tried to $skill, but $he could not do it.|$He tried and tried, but it did not work.|$He tried '
             'once, and $he tried twice, but it was too hard.} {"I will never learn to $skill," said $hero.|$Hero '
             'was sad.|"This is too hard," said $hero.}'),
            ('{Just then|Then} $fintro came along. "{I can teach you|I will show you how|Let me show you}," said '
             '$friend. "{You must be patient|Do not give up|It takes time|Just try again}."'),
            ("{Every day|Day after day|Every morning}, $friend helped $hero. {They practised from morning to "
             "night.|They worked very hard.|At first it was hard, but it became easier.|$Hero made many mistakes, "
             "but $he did not give up.}"),
            ('{After a week|After many days|One day|At last}, $hero could $skill {very well|all alone|without any '
             'help}. {"Look at me! I can do it!" {cried|said} $hero.|"I did it!" {cried|said} $hero.}'),
            '{"I knew you could do it," said $friend.|"Well done!" said $friend.|$Friend clapped and laughed.} $ENDING',
            "{$CLOSING|If you do not give up, you can learn anything.}",
        ],
        "asks": [
            ("What did $hero want to learn?", "$Hero wanted to learn to $skill."),
            ("Who taught $hero to $skill?", "$Friend taught $hero to $skill."),
            ("Who helped $hero?", "$Friend helped $hero."),
            ("Could $hero $skill at the end?", "Yes, at the end $hero could $skill."),
        ],
    },
    {
        "name": "storm",
        "moods": ["happy", "glad"],
        "topics": ["a storm", "a rainy day", "$someone in a storm"],
        "picks": {
            "shelter": "a small cave|an old barn|a hollow tree|an empty hut|a warm shed",
            "sharing": "a song|a story|a joke|a blanket",
        },
        "beats": [
            "$SETTING",
            ("{The sky was clear at first.|At first the day was fine.|} {Suddenly|Then} {dark clouds came|the sky "
             "became dark|the sky turned black}, and {it began to rain|a storm began|the rain came down}. {The "
             "thunder was very loud.|The wind blew and the thunder roared.|There was thunder and lightning.}"),
            ('{"I am all wet! I must find a dry place," said $hero.|$Hero was wet and cold.|$Hero was afraid and '
             'began to run.} {Then|Soon} $he {saw|found} $shelter.'),
            ('{Inside|In there} sat $fintro. {$Friend was shaking with fear.|$Friend was cold and afraid.|$Friend '
             'was afraid of the storm.} "{Do not be afraid|You are not alone now}, {I will stay with you|we will '
             'wait together}," said $hero.'),
            ("{They sat close together|They sat side by side}, and $hero shared $sharing with $friend. {Soon they "
             "were warm.|They laughed and forgot the storm.|They were not afraid any more.|Time went by very fast.}"),
            ('{At last|After an hour}, the {rain stopped|storm was over} and {a big rainbow was in the sky|the sun '
             'came out}. {"Look, {a rainbow|how bright it is}!" said $friend.|Everything was fresh and bright.}'),
            "$ENDING",
            "{$CLOSING|Even a storm is not so bad with a friend.}",
        ],
        "asks": [
            ("Where did $hero hide from the storm?", "$Hero hid in $shelter."),
            ("Who was in $theshelter?", "$Friend was in $theshelter."),
            ("What did $hero share?", "$Hero shared $sharing with $friend."),
            ("Who was afraid of the storm?", "$Friend was afraid of the storm."),
        ],
    },
    {
        "name": "share",
        "moods": ["happy", "glad"],
        "topics": ["sharing", "sharing $food", "$someone and $food"],
        "beats": [
            "$SETTING", "$WEATHER",
            ('$He had $food {in $his bag|with $him|for lunch}. {"This will taste so good," said $hero.|$He was very '
             'hungry.|It smelled so good.}'),
            ('{On the way|There}, $he met $fintro. $Friend {looked hungry|looked tired and hungry|had nothing to '
             'eat}. "{I have not eaten all day|I am so hungry|I have no food}," said $friend.'),
            ('{$Hero did not want to share at first.|$Hero looked at $his food and thought for a moment.|"But this '
             'is mine," thought $hero.} {But then $he felt sorry for $friend.|Then $he saw the sad face of $friend.}'),
            ('"{Here, take half of it|We can share it|Let us eat together}," said $hero. {They sat down and ate '
             'together.|They shared the food and talked for a long time.}'),
            ('{"You are very kind," said $friend.|"Thank you, you are a true friend," said $friend.} {The food '
             'tasted even better than before.|It was the best lunch ever.|} $ENDING'),
            "{$CLOSING|Food tastes best when you share it.|To share is to have a friend.}",
        ],
        "asks": [
            ("What did $hero have?", "$Hero had $food."),
            ("What did $hero share?", "$Hero shared $food."),
            ("Who was hungry?", "$Friend was hungry."),
            ("Who did $hero meet?", "$Hero met $fsomeone."),
        ],
    },
    {
        "name": "broken",
        "moods": ["happy", "glad"],
        "topics": ["a broken $obj", "saying sorry", "telling the truth"],
        "picks": {
            "fix": "glue|string|tape|a needle and thread|paint and glue",
        },
        "beats": [
            ("$Hero had a friend. {The friend was $fsomeone.|It was $fsomeone.} $Friend had a $thing, and {it was "
             "very special|$fhe loved it}."),
            "$SETTING",
            ('{$Hero and $friend played together.|$Friend came too, and they played with the $obj.} {But|Then} $hero '
             'dropped the $obj, and it broke. {"Oh no!" said $hero.|There was a loud crack.|}'),
            ('{$Hero wanted to hide it|$Hero was afraid to tell $friend|$Hero wanted to run away}, but {$he told the '
             'truth|$he was honest}. "I am {so|very} sorry. I broke your $obj," said $hero.'),
            ('{$Friend was sad, but $fhe was not angry.|$Friend was quiet for a moment.|At first $friend was angry.} '
             '"{Thank you for telling me the truth|We can fix it together|Let us try to fix it}," said $friend.'),
            ("They {used|took} $fix and {worked all afternoon|worked very carefully|worked together}. {At last|In "
             "the end}, the $obj was {as good as new|whole again|even better than before}."),
            "$ENDING",
            "{$CLOSING|It is always best to tell the truth.|A true friend can forgive.}",
        ],
        "asks": [
            ("What did $hero break?", "$Hero broke the $obj."),
            ("Whose $obj was it?", "The $obj belonged to $friend."),
            ("How did they fix the $obj?", "They fixed the $obj with $fix."),
            ("Did $hero tell the truth?", "Yes, $hero told the truth."),
        ],
    },
    {
        "name": "lonely",
        "moods": ["happy", "glad"],
        "topics": ["making a new friend", "a lonely $kind", "friends", "friendship"],
        "beats": [
            ('{But $hero had no friends.|But $hero was lonely.|$Hero was new there and had no one to play with.} {"I '
             'wish I had a friend," said $hero.|Every day $he played alone.|}'),
            "$SETTING", "$WEATHER",
            ("There $he saw $fintro. $Friend was playing with a $thing. {It looked like so much fun.|$Hero watched "
             "from $spot.|}"),
            ('{$Hero was shy and did not know what to say.|$Hero wanted to play too, but $he was too shy to '
             'ask.|$Hero took a deep breath.} At last, $he {went up to $friend and asked|said}, "{May I play with '
             'you|Can I play too}?"'),
            ('"{Yes, of course|Of course|Yes, please}! {It is more fun with two|I was hoping for a friend|Come and '
             'play}," said $friend. {They played with the $obj until {the sun went down|it was dark|supper}.|They '
             'played all day long.}'),
            ('{"Will you come back tomorrow?" asked $friend. "Yes, I will," said $hero.|"I am so glad I asked," said '
             '$hero.|} $ENDING $He was not lonely any more.'),
            "$CLOSING",
        ],
        "asks": [
            ("What was $friend playing with?", "$Friend was playing with a $thing."),
            ("Who did $hero meet?", "$Hero met $fsomeone."),
            ("Why was $hero sad?", "$Hero had no friends."),
            ("What did $hero ask?", "$Hero asked to play too."),
        ],
    },
    {
        "name": "rescue",
        "topics": ["a rescue", "being brave", "helping others", "helping a friend"],
        "picks": {
            "trap": "in a deep hole|in a net|in the mud|up in a tall tree|under a fallen branch",
            "tool": "a long rope|a strong stick|a ladder|a big branch",
        },
        "beats": [
            "$SETTING", "$WEATHER",
            ('{Suddenly|Then} $he heard a {small|sad|weak} voice. "Help! {Please help me|I am stuck|I cannot get '
             'out}!" {cried the voice|said the voice}.'),
            ("{$Hero ran to see who it was.|$Hero looked around.|$Hero followed the voice.} {There was|It was} "
             "$fintro, stuck $trap."),
            ('"{Do not worry|Stay calm|Wait}, I will {help you|get you out}," said $hero. {But it was not easy.|$He '
             'thought for a moment.|$He tried to pull, but it did not work.}'),
            ('{Then $he had an idea.|"I know what to do," said $hero.} $He {ran and got|found|brought} $tool. {$He '
             'pulled and pulled|With all $his strength $he pulled|Slowly and carefully $he worked}, and {soon|at '
             'last} $friend was free.'),
            ('"{You saved me|Thank you for saving me|You are so brave}!" said $friend. {"It was nothing," said '
             '$hero.|"I am happy to help," said $hero.|} $ENDING'),
            "$CLOSING",
        ],
        "asks": [
            ("Who was stuck?", "$Friend was stuck $trap."),
            ("Where was $friend stuck?", "$Friend was stuck $trap."),
            ("What did $hero use?", "$Hero used $tool."),
            ("Who saved $friend?", "$Hero saved $friend."),
            ("Who helped $friend?", "$Hero helped $friend."),
        ],
    },
    {
        "name": "fear",
        "topics": ["being afraid", "being brave", "$someone who was afraid of $fear"],
        "picks": {
            "fear": "the dark|deep water|thunder|high places|loud noises",
            "gift": "a small lamp|a lucky stone|a little bell|a warm scarf",
        },
        "beats": [
            "But there was one problem. $Hero was afraid of $fear.",
            "{The others laughed at $him.|$He was ashamed and told no one.|It made $him very sad.}",
            "$SETTING",
            ('{There|On the way} $he met $fintro. "{Why do you look so worried|What is the matter}?" asked $friend. '
             '"I am afraid of $fear," said $hero.'),
            ('{"Everyone is afraid of something," said $friend.|"I was afraid of $fear too," said $friend.|$Friend '
             'did not laugh.} $Friend gave $hero $gift. "{Hold it when you are afraid|Take this, and think of me|It '
             'will help you to be brave}," $fhe said.'),
            ("{That evening|The next day|Soon after}, $hero {held|took} $thegift and {took a deep breath|closed $his "
             "eyes and counted to three}. {Little by little|Step by step}, the fear went away."),
            '"I am not afraid any more!" {cried|said} $hero. $ENDING',
            "{$CLOSING|To be brave is to be afraid and to try all the same.}",
        ],
        "asks": [
            ("What was $hero afraid of?", "$Hero was afraid of $fear."),
            ("What did $friend give $hero?", "$Friend gave $hero $gift."),
            ("Who helped $hero?", "$Friend helped $hero."),
            ("Is $hero still afraid?", "No, $hero is not afraid any more."),
        ],
    },
    {
        "name": "birthday",
        "topics": ["a birthday", "a surprise", "a gift", "a party"],
        "beats": [
            ("$Hero had a good friend. {It was $fsomeone.|The friend was $fsomeone.} {Tomorrow was the birthday of "
             "$friend.|The birthday of $friend was coming.}"),
            ('{"I want to give $friend something special," said $hero.|$Hero wanted to find the best gift.|"What can '
             'I give to $friend?" thought $hero.}'),
            "$SETTING",
            ('{$He looked at many things.|$He looked here and there.|} {At last|Then} $he {found|saw} a $thing '
             '$spot. {"This is perfect!" said $hero.|It was just right.}'),
            ("{$He put it in a box with a ribbon.|$He hid it under $his bed.|$He wrapped it in pretty paper.} {$He "
             "also made a big cake.|$He asked all the others to come.|}"),
            ('The next day, $friend came. "Surprise! Happy birthday!" cried {everyone|$hero}. {$Friend opened the '
             'box and saw the $obj.|$Hero gave $friend the $obj.} "{This is the best gift ever|I love it|It is so '
             'pretty}!" said $friend.'),
            "{They ate cake and danced.|They sang songs and played games.|} $ENDING",
            "$CLOSING",
        ],
        "asks": [
            ("Whose birthday was it?", "It was the birthday of $friend."),
            ("What was the gift?", "The gift was a $thing."),
            ("What did $hero give $friend?", "$Hero gave $friend a $thing."),
            ("Where was the $obj?", "The $obj was $spot."),
        ],
    },
    {
        "name": "plant",
        "topics": ["a garden", "a $plant", "a seed", "$someone who planted a seed"],
        "beats": [
            ('One {day|morning|spring day}, $hero found a {tiny|small|little} seed $spot. {"What will it be?" '
             'thought $hero.|"I will plant it," said $hero.}'),
            ("$He {put it in the ground|planted it in good soil} and gave it water {every day|every morning}. {But "
             "nothing happened.|Days went by, but nothing grew.|$He waited and waited.}"),
            ('{"Maybe it is a bad seed," said $hero.|$Hero wanted to give up.|$Hero was sad.} {Then|One day} $fintro '
             'came by. "{Be patient|You must wait|Good things take time}. {It needs sun and rain|It needs time}," '
             'said $friend.'),
            ("So $hero waited. {The sun shone and the rain fell.|It rained, and the sun came out.} {One morning|At "
             "last}, {a green leaf came out of the ground|there was a tiny green leaf}. {It grew and grew.|It grew "
             "taller every day.}"),
            ('{In the end|After some weeks}, it {became|was} a {big|beautiful|fine} $plant. {"Look what we have!" '
             '{cried|said} $hero.|"It is wonderful!" said $friend.} $ENDING'),
            "{$CLOSING|Good things take time.}",
        ],
        "asks": [
            ("What did $hero plant?", "$Hero planted a seed."),
            ("What did the seed become?", "The seed became a $plant."),
            ("Where did $hero find the seed?", "$Hero found the seed $spot."),
            ("Who told $hero to wait?", "$Friend told $hero to wait."),
        ],
    },
    {
        "name": "race",
        "topics": ["a race", "running a race", "$someone who ran a race"],
        "picks": {
            "goal": "the old oak tree|the big stone|the bridge|the gate|the mill",
        },
        "beats": [
            ('One day, $hero met $fintro {$at|}. "{I am faster than you|I am the fastest of all|Let us have a '
             'race}," said $friend. "{Let us run|We can run|We will run} to $goal."'),
            "$WEATHER",
            ('"One, two, three, go!" They ran {as fast as they could|like the wind|side by side}. {Soon|At first}, '
             '$friend was {far ahead|in front}.'),
            ('{But then|Suddenly} $friend {fell over a stone|slipped in the mud|fell and hurt $fhis leg}. "{Ouch|Oh '
             'no}! {My leg hurts|I cannot run}," {cried|said} $friend.'),
            ('{$Hero could win now.|Now $hero could win the race.} But $he stopped and {helped $friend to stand '
             'up|helped $friend|came back}. "{A friend is more important than a race|I do not want to win like '
             'this}," said $hero.'),
            ('So they walked to $goal together{, side by side|, hand in hand|}. "{We both won|You are a true '
             'friend|Thank you, $hero}," said $friend. $ENDING'),
            "$CLOSING",
        ],
        "asks": [
            ("Who fell?", "$Friend fell."),
            ("Where did they run to?", "They ran to $goal."),
            ("Why did $hero stop?", "$Hero stopped to help $friend."),
            ("Who won the race?", "They both won, because they walked to $goal together."),
        ],
    },
    {
        "name": "night",
        "moods": ["happy", "glad"],
        "topics": ["the moon", "a star", "a bedtime story", "the night"],
        "picks": {
            "shine": "the moon|a bright star|a little star|the evening star",
            "song": "a soft song|an old song|a quiet story",
        },
        "beats": [
            ("One night, $hero could not sleep. {$He turned left and right.|The night was long and quiet.|} $He "
             "looked {up|out} and saw $shine in the dark sky."),
            ('{"Are you lonely up there?" asked $hero.|"How far away you are," said $hero.|"I wish I could touch '
             'you," said $hero.} {The sky was quiet.|But there was no answer.|}'),
            ('{Then|Just then} $fintro {came and sat beside $him|came along}. {"I cannot sleep either," said '
             '$friend.|"Why are you awake?" asked $friend.} "{The night is too quiet|I have too many thoughts|I am '
             'not tired}," said $hero.'),
            ("So $friend {sang|began} $song about {the sea|the sleeping forest|the wind|a far land}. {They watched "
             "the sky together.|They lay in the soft grass and listened to the wind.|The night was warm, and the air "
             "was sweet.}"),
            ('{Soon|Little by little}, $hero closed $his eyes. "Good night," {said|whispered} $friend. {$Shine '
             'watched over them all night long.|Soon they were both asleep.}'),
            "{$ENDING|} {Good night.|The end.|It was a good night.|}",
        ],
        "asks": [
            ("What did $hero see in the sky?", "$Hero saw $shine."),
            ("Who could not sleep?", "$Hero could not sleep."),
            ("Who came to $hero?", "$Friend came to $hero."),
        ],
    },
    {
        "name": "treasure",
        "moods": ["happy", "glad"],
        "topics": ["a treasure", "a map", "an adventure", "a treasure hunt"],
        "picks": {
            "box": "a small chest|a wooden box|an old bag|a clay pot",
        },
        "beats": [
            ('One day, $hero found an old map {$spot2|under $his bed|in a dusty book}. {It showed the way to a '
             'treasure.|There was a red cross on it.} {"A treasure!" {cried|said} $hero.|$Hero was very excited.}'),
            ('{$He asked $fintro to come along.|$He showed it to $fintro.} "{Let us find it together|What an '
             'adventure|Let us go}," said $friend. {They packed some food and left early.|They left at once.}'),
            ("They went $toplace. $WEATHER {The way was long and hard.|They crossed a stream and climbed over "
             "rocks.|They followed the map step by step.}"),
            ('{At last|In the end}, they {looked|searched} $spot and {found|saw} $box. {$Hero opened it '
             'slowly.|"Open it!" said $friend.} {Inside was|In it was} a $thing.'),
            ('{"It is not gold, but it is pretty," said $hero.|"How pretty it is!" said $friend.|"We did it!" '
             '{cried|said} $hero.} {"The best treasure is a good friend," said $friend.|They laughed and danced.|} '
             '$ENDING'),
            "$CLOSING",
        ],
        "asks": [
            ("What was the treasure?", "The treasure was a $thing."),
            ("What was in $thebox?", "There was a $thing in $thebox."),
            ("Where was the treasure?", "The treasure was $spot."),
            ("Who went with $hero?", "$Friend went with $hero."),
            ("What did $hero find?", "$Hero found an old map."),
        ],
    },
    {
        "name": "errand",
        "topics": ["going shopping", "a visit", "$his $relative", "$someone who helped $his $relative"],
        "beats": [
            ("One day, $hero's $relative was sick. \"{I will bring $rhim $food|I will go and help|I want to make "
             "$rhim happy},\" said $hero."),
            ("$He took $food and a $thing, and went on $his way. {The way led past the $place.|$He had to go past "
             "the $place.} $WEATHER"),
            ('{There|On the way} $he met $fintro. "{Where are you going|What do you have there}?" asked $friend. "I '
             'am going to my $relative," said $hero.'),
            ('{$Hero did not know the way any more.|Then $hero lost the way.|But the way was long, and $hero was '
             'tired.} "{I will show you the way|I will come with you|Come, I know the way}," said $friend.'),
            ('{Together they walked on and sang a song.|They talked and laughed all the way.} {Soon|At last} they '
             'were there. "{How nice to see you|What a lovely surprise|You made my day}!" said the $relative.'),
            "{They ate $food together.|Everyone sat at the table and ate.|} $ENDING",
            "$CLOSING",
        ],
        "asks": [
            ("Who was sick?", "$Hero's $relative was sick."),
            ("What did $hero take?", "$Hero took $food and a $thing."),
            ("Who went with $hero?", "$Friend went with $hero."),
            ("Who did $hero meet?", "$Hero met $fsomeone."),
        ],
    },
]
