"""Sentences that every story shares: how it opens and ends, and what the hero is like. Data only, as in plots.py."""

OPENINGS = (
    "{Once upon a time|Long ago|Once}{,|} there {was|lived} $intro. {$He|$Hero} lived $home.",
    "{Once upon a time|Once}{,|} $intro lived $home.",
    "There {once was|was once} $intro who lived $home.",
    "$Intro lived $home.",
    "$Hero was $what. {$He|$Hero} lived $home.",
)
LIKES = (
    "$He {loved|liked} {to play|playing} outside.",
    "$He {laughed|sang|smiled} {a lot|all day long|every day}.",
    "Everyone {liked $hero|knew $hero|was fond of $hero}.",
    "$He often {got up early|went for a walk|told funny stories|helped the others}.",
    "$He {loved|liked} {to look at the clouds|to listen to the birds|to walk in the sun|to tell jokes|to sing songs}.",
    "$He had {many dreams|a big smile|a warm heart|a soft voice|bright eyes}.",
    "",
)
SETTINGS = (
    "One {day|morning|afternoon}, $hero {went|walked|ran} $toplace.",
    "One {fine|quiet|bright|cold|warm|early} {day|morning|afternoon}, $he {went|walked} $toplace.",
    "One day, $hero {wanted|decided} to go $toplace.",
)
ENDINGS = {
    "happy": (
        "$Who was very happy.",
        "$Hero {felt|was} so happy {that $he smiled all day|that $he danced all the way home|}.",
        "$Hero smiled and {felt|was} happy.",
    ),
    "proud": (
        "$Who was very proud.",
        "$Hero {felt|was} {so|very} proud {of what $he had done|}.",
    ),
    "glad": (
        "$Who was very glad.",
        "$Hero {felt|was} glad {and warm inside|and went home with a smile|}.",
    ),
}
CLOSINGS = (
    "From that day on, $hero and $friend were {best|good|the best of} friends.",
    "And they all lived happily ever after.",
    "That night, $hero slept {very well|like a stone|with a smile on $his face}.",
    "The end.",
    "",
    "From that day on, they {played together every day|always helped each other|met every morning}.",
    "$Hero never forgot that {day|wonderful day}.",
    "It was {a wonderful day|a very good day|a great day|the best day of all}.",
    "Then $hero went home and {told everyone about it|had a warm supper|went to bed}.",
)
