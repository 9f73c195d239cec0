"""The words of requests, in English and Italian, as tables and patterns: one for each purpose.

Endings of verbs and nouns are written where they differ. A pattern may be for a plain text, see
`gbnf.requests.phrases.plain_text`, and then has no capital letters and accents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gbnf.requests.phrases import ADDRESS, PATH, QUOTED

# The parts of a request, and what lists have between their terms

THEN: Final = "and|then|e|poi"
OR: Final = "and|or|e|o|und|et|y"
FURTHER: Final = re.compile(
    rf"\b(?:{THEN}|also|both|plus(?!\s[$€£]?\d)|ed|anche|und|dann|auch|et|puis|aussi|y|luego|también)"
    r"\b(?!\.)|[、，；;]",
    re.IGNORECASE,
)
"""What joins a further part; a sum, "plus 5", is one request."""
PART_END: Final = re.compile(rf"[.,;!?]\s+|[!?]\Z|\b(?:{THEN})\b", re.IGNORECASE)
_ALSO: Final = r"(?:and|then|also|e|ed|poi|anche)"
PART_JOINT: Final = re.compile(
    rf"(?:[,;]?(?<!\s)\s++(?={_ALSO}\s)|[,;]\s++|(?<=[.!])\s++)(?:{_ALSO}\s++){{0,3}}(?=\S)", re.IGNORECASE
)
"""What joins two parts: a comma, a conjunction, the end of a sentence."""
ORDER_BEGINNING: Final = re.compile(
    r"(?:(?:hi|hey|hello|ok|okay|please|kindly|now|so|well|allora|ciao|dai|ehi|ora|adesso|senti"
    r"|per favore"
    r"|(?:can|could|would|will) you(?: please)?|i(?:['’]d like| want) you to|i need you to|help me to"
    r"|(?:puoi|potresti)(?: per favore)?|ti prego(?: di)?|vorrei che|next|finally|infine)"
    r"[,:]?\s+){0,4}(?P<verb>[^\W\d_]+)",
    re.IGNORECASE,
)
"""What an order begins with: a verb, after words that only ask for it."""
_ORDERS: Final = """
create make add append write save put record note read open show display list find search look locate count
delete remove erase discard trash send mail email forward compute calculate book schedule set enter keep store
type jot start give rename move copy
crea fai fammi aggiungi scrivi salva metti annota appunta segna registra leggi leggimi apri mostra mostrami
elenca trova cerca conta cancella elimina rimuovi butta manda invia spedisci inoltra calcola prenota fissa
inserisci dammi rinomina sposta copia
"""
ORDER_VERBS: Final = frozenset(_ORDERS.split())
"""In the form of an order: what is told of others ("deletes", "cancellare") is none."""
_SENDS: Final = r"e-?mail|mail|send|forward|message|posta|mand\w+|invi\w+|spedi\w+|inoltr\w+|messaggi\w*"
SENDS: Final = re.compile(rf"\b(?:{_SENDS})\b", re.IGNORECASE)
"""What needs an address, which may be in the results of another part."""
WRITES: Final = re.compile(
    rf"\b(?:{_SENDS}|write|save|put|record|note|type|jot|keep|store|append|enter|log|scriv\w+|salv\w+|mett\w+"
    r"|annot\w+|appunt\w+|segn\w+|registr\w+|con dentro|contenente)\b",
    re.IGNORECASE,
)
"""What has a text, which may be in words that ask for something else."""
TELLS: Final = re.compile(
    r"\b(?:tell|ask|remind|inform|notify|warn|explain|translate|summari[sz]e|say\w*|said|know|how|why|that|which"
    r"|who|what|steps|instructions?|guide|script|lines|rules?|reads?\s+as|should|must|i|he|she|they|we"
    r"|di['’]|dì|dire|dica|dice|chied\w+|avvis\w+|avvert\w+|comunic\w+|ricord\w+|dicend\w+|che|come|perch[eé]"
    r"|spieg\w+|tradu\w+|riassum\w+|istruzion\w+|guida|deve|devono|regol[ae])\b"
    r"|:\s*(?=[^\s,;.])",
    re.IGNORECASE,
)
"""What begins a text without quotes: what follows is a part of it, and nothing to be done."""
REFERS_TO_PART: Final = re.compile(
    r"\b(?:it|its|them|their|these|those|there|one|ones|inside|same|results?|answer|sum|total|both|each"
    r"|everything|summary|product|average|translation"
    r"|(?:this|that)(?![^,;]{0,60}:)"  # save this: …
    r"|lo|la|li|le|ne|ci|vi|quest[aoei]|quell[aoei]|dentro|rispost[ae]|stess[aoei]|risultat[oi]|somma"
    r"|totale|tutto|riassunto|entramb[ie]"
    r"|\w{2,}(?:[ae]l[aoei]|i[lc][aoei]|r[lc][aoei]|[aei]ci|[mtc]e(?:l[aoei]|ne)))\b(?!\s*[@/])",
    re.IGNORECASE,
)
"""What stands for something of another part."""
NAMES_RESULT: Final = re.compile(
    r"(?<!\ball )(?<!\btutti )\b(?:(?:the|my|il|lo|la|i|le|gli|mi[ao])\s+|l['’])"
    r"(?:texts?|contents?|lists?|numbers?|options?|pick|choice|decision|names?|dates?|slots?|times?|lines?"
    r"|files|paths?|hour|test[oi]|contenut[oi]|elenc[ohi]+|list[ae]|numer[oi]|opzion[ei]|scelt[ae]"
    r"|decision[ei]|nom[ei]|dat[ae]|orar[io]+|righ?[ae])\b",
    re.IGNORECASE,
)
"""The same, unless the part has a text in quotes: write the text "call mom"."""
DEPENDS: Final = re.compile(
    r"\b(?:if|unless|otherwise|instead|except|but|whether|as soon as|once|until|depending|when|in case|were"
    r"|not|never|no|nobody|none|cannot|nor|or|either|rather|other than|apart from|keep|leav\w+|spare|however"
    r"|actually|wait|sorry|correction|decide|avoid\w*|refrain|skip|forbidden|only|before(?:hand)?|after|order"
    r"|first|latter|former|second|plus|followed by|for (?:each|every)|twice"
    r"|se|altrimenti|invece|tranne|ma|appena|finch[eé]|a seconda|non|mai|n[eé]|o|oppure|salvo|esclus[oi]"
    r"|eccetto|a parte|anzi|senza|evit\w+|vietat\w+|nessun\w*|quando|qualora|nel caso|lasci\w+|prima|dopo"
    r"|seguit[oa] da|per ogni)\b|n['’]t\b",
    re.IGNORECASE,
)
"""What makes one part depend on another, changes their order, or forbids something."""
CLAUSE_END: Final = re.compile(rf" (?:{THEN}) ")
LISTED: Final = re.compile(rf"(?:\s|[,;/&$€£%]|\b(?:{OR}|then)\b)*", re.IGNORECASE)
"""What is between two values of one list."""
ENUMERATION: Final = re.compile(r"\w++(?: \w++){0,2}(?:, \w++(?: \w++){0,2})*,? (?:and|e) \w++")
"""A text that is a list: "bread, milk and eggs"."""

# Time

MONTHS: Final = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    )
    for number, name in enumerate(names.split(), 1)
}
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS_AWAY: Final = {
    "yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "tmrw": 1, "tmr": 1,
    "day after tomorrow": 2,
    "ieri": -1, "oggi": 0, "stasera": 0, "domani": 1, "dopodomani": 2,
}  # fmt: skip
WEEKDAY_NUMBERS: Final = {
    name: number
    for names in (
        WEEKDAYS,
        ["lunedì", "martedì", "mercoledì", "giovedì", "venerdì", "sabato", "domenica"],
        ["lunedi", "martedi", "mercoledi", "giovedi", "venerdi"],
    )
    for number, name in enumerate(names)
}
RELATIVE_DAY: Final = re.compile(
    rf"\b(?:{'|'.join(sorted((*DAYS_AWAY, *WEEKDAY_NUMBERS), key=len, reverse=True))})\b", re.IGNORECASE
)
NO_NAMES: Final = {"i", "also", "plus", "then", "may", *WEEKDAYS, *(name for name in MONTHS if len(name) > 3)}
"""Words that begin a clause, and dates, which are written as a tool wants them: no names."""
TIME_WORD: Final = re.compile(
    rf"\b(?:{'|'.join(MONTHS)}|noon|midnight|(?:mid)?(?:day|week|month|year|hour|minute)s?|morning|afternoon"
    r"|evening|night|weekend|now|later|soon|mezzogiorno|mezzanotte|giorn[oi]|settiman[ae]|mes[ei]|ann[oi]"
    r"|or[ae]|minut[oi]|mattin[ao]|pomeriggio|sera|notte|adesso|dopo|tardi|una)\b",
    re.IGNORECASE,
)
"""A word for a time, such as those in which something may be."""
TIME_RANGE: Final = re.compile(
    r"\b(?:from|between|dalle|tra le) (\d{1,2}:\d\d) (?:to|and|until|till|alle|e le) (\d{1,2}:\d\d)\b",
    re.IGNORECASE,
)
"""From 14:00 to 16:30."""
SPOKEN_TIME: Final = re.compile(
    r"\b(?:past|quarter to|o['’]clock|e mezz[ao]|un quarto|halb|viertel|heures?|media|cuarto|e meia|kwart)\b",
    re.IGNORECASE,
)
"""Of times that are spoken, in the languages of `gbnf_server.planner.spans.dates`: half past nine."""
RECURRING: Final = re.compile(r"\b(?:every|each|daily|weekly|ogni|tutt[ie])\b", re.IGNORECASE)
FINDS_ONE: Final = re.compile(
    r"\b(?:find|look for|pick|choose|get|propose|suggest|trova|cerca|scegli|proponi)(?:\s+me|mi)?\s+"
    r"(?:(?:an?|one|una?|uno)\s(?!(?:couple|pair|few|dozen|handful|number|paio|po|decina|dozzina|serie)\b)|un['’])"
    r"(?![^\n]*\b(?:two|three|four|five|six|ten|both|several|them|due|tre|quattro|cinque|sei|[2-9] \w+s)\b)",
    re.IGNORECASE,
)
"""Find a slot: one of those that there are."""

# Numbers, calculations and units

NUMBER_WORDS: Final = {
    word: str(number)
    for number, word in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 1
    )
}
ONE_THING: Final = re.compile(
    r"\b(?:another|any|each|every|next|no|that|the|this|which) one\b", re.IGNORECASE
)
"""These words for one thing are no number."""
POWERS_OF_TEN: Final = {"k": 3, "thousand": 3, "million": 6, "m": 6, "billion": 9, "bn": 9}
OPERATIONS: Final = {
    r"(?:%|percent|per ?cento) (?:of|di|del|dei|delle)": "{} / 100 * {}",
    r"(?:times|multiplied by|moltiplicato per|per(?= \S+\s*\?))": "{} * {}",
    r"(?:divided by|diviso(?: per)?)": "{} / {}",
    r"(?:plus|pi[ùu])": "{} + {}",
    r"(?:minus|meno)": "{} - {}",
}
"""Operations in words, between two numbers, and their expressions; without accents, too."""
OPERATORS: Final = re.compile(
    r"%|\b(?:per ?(?:cent|cento)|times|multiplied|moltiplicato|divided?|diviso|plus|più|minus|meno|half|twice"
    r"|double|squared?|root|cubed?|power|negative|metà|doppio|quadrato|radice)\b",
    re.IGNORECASE,
)
"""Operations in words of any form: with one more, a calculation is not the whole."""
MEASURE: Final = re.compile(
    r"\bin ((?:kilo|centi|milli)?met(?:er|re)s?|miles?|feet|inch(?:es)?|yards?|(?:kilo)?grams?|pounds?"
    r"|celsius|fahrenheit|kelvin|hours?|minutes?|seconds?)\b"
    r"|\d\s?((?!(?:and|or|to|of|with|for|by|is|at|in|on|as|x|th|st|nd|rd|times|percent|e|o|di)\b)[^\W\d_]+)\b",
    re.IGNORECASE,
)
"""A unit, or a number with its unit."""
UNITS: Final = (
    frozenset({
        "mm", "cm", "m", "km", "in", "ft", "yd", "mi", "inch", "inches", "foot", "feet", "yard", "yards",
        "mile", "miles", "meter", "meters", "metre", "metres", "kilometer", "kilometers", "centimeters",
    }),
    frozenset({"g", "kg", "gram", "grams", "kilogram", "kilograms", "lb", "lbs", "pound", "pounds", "oz"}),
    frozenset({"c", "f", "k", "celsius", "fahrenheit", "kelvin"}),
)  # fmt: skip
"""Names of units that measure the same."""

# Words that say nothing of a tool, and what is asked

_ENGLISH: Final = """
a an the and or of to in on at by for from with into is are was were be been being am do does did have has
had i you he she it we they me us him them my your his her its our their this that these those as if not no
can could would should will shall may might must what which who how when where why please there than so let
get s t d m re ve ll want need like tell give help know
"""
_ITALIAN: Final = """
un uno una il lo la i gli le l e ed o od di a ad da in con su per tra fra del dello della dei degli delle dell
al allo alla ai agli alle all dal dallo dalla dai dagli dalle dall nel nello nella nei negli nelle nell sul
sullo sulla sui sugli sulle sull che chi cui non si no se come quando dove perche quale quali quanto quanti
quanta quante cosa cos c ci vi mi ti io tu lui lei noi voi loro me te mio mia miei mie tuo tua suo sua nostro
vostro questo questa questi queste quello quella quelli quelle sono sei siamo siete era essere ho hai ha
abbiamo avete hanno avere vorrei voglio puoi potresti posso devo favore dimmi dammi fammi aiutami
"""
STOP_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "english": frozenset(_ENGLISH.split()),
    "italian": frozenset(_ITALIAN.split()),
}
"""Words that say nothing of a tool, by language and without accents."""
_INTERROGATIVE: Final = (
    r"(?:what|which|who|whose|where|when|how|che|cosa|qual[ei]?|quant[oaie]|chi|dove|quando|com['e])\b"
)
_SHOWING: Final = (
    r"(?:(?:please|(?:can|could|would) you|puoi|potresti)\s+)*"
    r"(?:show|list|read|find|search|look|open|display|print|tell me"
    r"|(?:mostra|leggi|elenca|trova|cerca)(?:mi)?|apri|dimmi)\b"
)
QUESTION: Final = re.compile(
    rf"\s*(?:{_INTERROGATIVE}(?:[^.!\n]|\.\b)*\?\s*\Z|{_SHOWING}[^,;:]*\Z)", re.IGNORECASE
)
"""A question, or a request to show or find something."""
ASKS_WHETHER: Final = re.compile(
    r"\s*+(?![^\n]*\b(?:you|please|puoi|potresti|per favore|able to|(?:way|chance|possibility|time) (?:to|of)"
    r"|mind|allowed|mett\w+|modo di"
    r"|possibilità di)\b)"
    r"(?:any|(?:is|are|was|were) there|(?:do|did|have|had|am|was|were|are) (?:I|we)|does|has"
    r"|c['’](?:è|era)|ci sono|ho)\b(?:[^.,;:!\n]|\.\b)*\?\s*\Z",
    re.IGNORECASE,
)
"""A question for yes or no, and not one of whether something may be done: "can I have it on Friday?"."""
ASKING: Final = re.compile(
    rf"\s*(?:{_INTERROGATIVE}|{_SHOWING}|"
    r"(?:is|are|was|were|do|does|did|has|have|any|should|explain|spiega(?:mi)?)\b)",
    re.IGNORECASE,
)
"""The beginning of a question, or of what says to show or find something."""
ASKS_WHAT: Final = re.compile(
    r"\s*(?:(?:please|puoi|can you|could you)\s+)?"
    r"(?:what|which|che|qual\w*|tell me|dimmi|give me the|dammi l|show me)\b",
    re.IGNORECASE,
)
"""The beginning of a request that one result may answer."""
OF_PERSONS: Final = re.compile(
    r"\b(?:i|we|he|she|they|you|my|your|have|has|had|was|were|do|did|must|should|will|not|no|non|ho|hai|sei"
    r"|devo|devi|era|giornata|a day)\b|n['’]t\b",
    re.IGNORECASE,
)
"""What is about persons, so that no clock answers it: "what time do I have to leave?"."""
ANOTHER: Final = re.compile(
    r"\b(?:also|another|again|repeat|same|finally|what if|anche|altr[oaie]|ripeti|stess[oaie]|infine)\b",
    re.IGNORECASE,
)
"""What says that there is more to do: "also for Rome"."""

# What is not asked for: places, prohibitions, what the person did

PLACE: Final = re.compile(
    r"\b(?:in|under|within|inside|into|from|of|at|sotto|nell[ao']|nel|dentro|dall[a']|dal|della|del|di)"
    r"(?:\s+(?!(?:and|or|then|to|e|ed|o|poi|calendar\w*|agenda)\b)\w+){1,3}"
)
"""Words that say where something is; an event is put into a calendar."""
WHERE_TO: Final = re.compile(r"(?:in|into|to|on|onto|at|al|alla|nel\w*|sul\w*) ")
"""The beginning of a phrase that says where to: "in my calendar"."""
FORBIDDEN: Final = re.compile(
    r"\b(?:do not|don['’]?t|never|without|non|senza)(?:\s+(?!forget|dimentic)\w+){1,3}"
)
"""Words that say what not to do."""
SOUGHT_FOR: Final = re.compile(
    r"(\b(?:propose|suggest|find|list|show|check|proponi|suggerisci|trova|cerca|mostra|elenca)\b"
    rf"(?:(?! (?:{THEN}) )[^.,;:?!]){{0,200}}?)"
    r"\b(?:for (?:an?|the|my|our)|per (?:una?|il|la|mi[ao])\b|per (?:un|l)['’])\s*\w+"
)
"""What something is looked for: a slot for a meeting."""
TOLD: Final = re.compile(
    r"\b(?:did|have|had) (?:i|we) (?:\w+ )??(?!have|need|want)\w+"
    r"|\b(?:what|where|which|that|all|when|how|everything) (?:i|we) (?:(?:have|had|already|just|once) )*"
    r"(?!have|need|want|wish|would|d|ll|must|should|am|can|could|may|to|ve)\w+"
    r"|\b(?:i|we) (?:(?:ve|have|had|already|just|once) )+(?!to|need|want)\w+"
    r"|\b(?<!as )(?<=s )(?:i|we) (?:keep|store|own)\b|\b(?:ho|abbiamo|avevo|avevamo) (?:gia )?\w+"
)
"""What the person does or did: where did I put it, what I wrote."""
_SOMEBODY: Final = r"[^\s,;:!?]++(?:\s++(?!(?:not|to|that|di|che)\b)[^\s,;:!?]++){0,2}"
_MUST: Final = (
    r"(?:(?:he|she|they|you|we)\s+(?:should|must|can|could|may|ha(?:s|ve) to|needs? to|ought to)\b"
    r"|(?:non\s+)?(?:dev|dovr|pu[òo]))"
)
_TO: Final = r"(?:(?:not\s++)?to(?=\s)|di(?=\s+(?:non\s+)?\w{2,}[aei]r))"
TOLD_OTHERS: Final = re.compile(
    r"(?P<told>"
    rf"\b(?:tell|ask|warn|advise|instruct|urge)\s++(?!(?:me|us|you)\b){_SOMEBODY}\s++{_TO}"
    rf"|\b(?:(?:e-?)?mail|message|write(?:\s++to)?)\s++{ADDRESS}\s++{_TO}"
    rf"|\b(?:tell|inform|notify|warn|(?:e-?)?mail|message|write\s++to)\s++{_SOMEBODY}\s++that(?=\s+{_MUST})"
    rf"|\b(?:remind|avv(?:is|ert)\w+)\s++{_SOMEBODY}\s++(?:{_TO}|(?:that|che)(?=\s+{_MUST}))"
    r"|\b(?:di['’]?|dì|dica|dire|chied\w+|ricord\w+|scriv\w+|comunic\w+)\s++"
    rf"(?:(?:a[dl]?|all[oae]|ai|agli)\s++|all['’]){_SOMEBODY}\s++(?:{_TO}|che(?=\s+{_MUST}))"
    rf"|\b(?:reminder|note|memo|task|promemoria|nota|ricordami)\s++{_TO}(?=\s+(?!an?\b|the\b|my\b|our\b)[^\W\d_]+\s)"
    r"|\bsaying(?=\s+[^\s\"'“«`])"
    rf")\s(?:[^.,;!?\n]|\.(?=\S)|,(?!\s+{_ALSO}\b))*+"
    rf"|(?P<named>(?<![\w.+-]){ADDRESS}\s*:)\s*+(?![\"'“«`])"
    r"(?:(?![.!]\s+(?:then|after|also|finally|poi|dopo|infine)\b)[^\n])*+",
    re.IGNORECASE,
)
"""What somebody else is told to do: "tell a@b.org to delete the draft"."""
REJECTS: Final = re.compile(
    r"n't\b|\b(?:not|without|instead of|rather than|non|senza|invece)\b", re.IGNORECASE
)
"""What a request names may be what it does not want."""

# Files, and what is done to them

SEVERAL_FILES: Final = re.compile(
    r"\*\.\w|\b(?:end(?:s|ing)?|finisc\w+|termin\w+) (?:in|with|con|per) \.?\w"
    r"|\b(?:(?!(?:the|my|our|these|those|both|two|three|which|what|any|read|open|show|display|do|upload)"
    r"\b)\w+ files"
    r"|files (?:\w+ing|that|which|with)"
    r"|(?:every|each) \w+ file|(?:i|ogni) file(?: di)? \.?\w+"
    r"|(?:every|each|all(?: the)?|ogni|i|tutti i) \.?(?:pdf|csv|txt|log|tmp|md|json|xml|ya?ml"
    r"|zip|png|jpe?g|docx?|xlsx?|html?|bak|part|mp[34]|wav)s?)\b",
    re.IGNORECASE,
)
"""Files that are named by their kind: the log files, those in .part."""
_FILE_NOUN: Final = r"files?|folders?|director\w+|cartell\w+"
ABOUT_FILES: Final = re.compile(
    rf"\b(?:{_FILE_NOUN}|documents?|notes?|lists?|write|save|document[oi]|not[ae]|elenc\w+|list[ae]|scriv\w+"
    r"|salv\w+)\b|/",
    re.IGNORECASE,
)
"""What speaks of files, and not of times that were found."""
CALLED_FILES: Final = re.compile(rf"\b(?:{_FILE_NOUN})\b", re.IGNORECASE)
"""What is called a file or a folder."""
CONTENT_OF: Final = re.compile(
    r"\b(?:what(?: is|.?s) (?:written )?(?:in|inside)|contents? of|text of (?=\S*\w\.\w)"
    r"|(?:cosa|che) c.e (?:in|nel\w*)|contenut[oi] (?:di|del\w*)|testo (?:di|del\w*) (?=\S*\w\.\w))\b"
)
"""What is in something: "send Anna what is in it"."""
WRITE: Final = r"(?:write|save|put|scrivi|salva|metti)"
BEFORE_SOURCE: Final = re.compile(
    r"\b(?:read|open|copy|from|leggi|apri|copia|da|dal)\s+(?:\w+\s+){0,3}$", re.IGNORECASE
)
"""What is before a file that is read: "copy the list from a.txt"."""
NOT_READ: Final = re.compile(r"\b(?:not|never|without|already|non|senza|già)\b|n['’]t\b", re.IGNORECASE)
"""What is before a file that is not to be read."""
BEFORE_TARGET: Final = re.compile(
    rf"\b(?:{WRITE}|type|store|note|annota)\b[^.;!?\n]{{1,80}}"
    r"\b(?:to|in|into|as|nel|nella|su|come)\s+(?:the |il |la )?(?:file\s+)?$",
    re.IGNORECASE,
)
"""What is before a file that is written: "save it to a.txt"."""
BEFORE_DESTINATION: Final = re.compile(
    # from the first space of a run, so that a request of spaces takes linear time
    r"(?<![\s,:;])[\s,:;]++(?:to|in|into|as|at|for|a|nel|nella|su|come|per)\s*$",
    re.IGNORECASE,
)
"""A preposition at the end of a text, before where it goes."""
APPENDS: Final = re.compile(
    rf"\b(?:add|append|aggiung\w+|accoda)\b(?:(?!\b(?:{THEN})\b)[^.;!?\n]){{1,80}}?"
    r"\b(?:to|at the end of|in|a|al|alla|in fondo a)\s+(?:the file |il file |file )?"
    rf"(?P<path>{PATH.pattern})",
    re.IGNORECASE,
)
"""What is added to a file: "add a line with milk to list.txt"."""
WRITES_QUOTE: Final = re.compile(
    rf"(?<!\w){QUOTED.pattern}\s+(?:in|into|to|as|nel|in fondo a|su)\s+(?:the |il )?(?:file |text file )?"
    rf"(?P<path>{PATH.pattern})",
    re.IGNORECASE,
)
"""A text in quotes that goes into a file, whatever the verb: jot 'milk' down, type 'pen' in a.txt."""
SEARCHES: Final = re.compile(
    r"\b(?:find|search\w*|look\w*|count\w*|how (?:many|often)|where|is|are|occur\w*|mention\w*"
    r"|replac\w*|chang\w*|cerc\w+|trov\w+|cont\w+|quant[ei]|dove|sostitu\w+|cambi\w+)\b[^.;!?\n]{0,60}\Z",
    re.IGNORECASE,
)
"""What is before a text that is looked for, or replaced, in a file."""
ASKS_FOR_TEXT: Final = re.compile(
    r"\W*(?:(?:please|(?:can|could) you(?: please)?|per favore|puoi)\s+)?"
    r"(?:(?:read|show|open|display|print|leggi|mostra|apri)(?:mi| me)?|what(?: is|'s|’s) in|what (?:do|does)"
    r"|what (?:did|have) (?:I|we) (?:put|write|written|note|noted|saved?|ke(?:ep|pt)) in"
    r"|(?:che )?cosa (?:c['’]è (?:in|nel)|dice|contiene|ho scritto (?:in|nel)))\s+"
    r"(?:(?:the|il|lo) )?(?:(?:file|note|text|nota|testo) )?"
    rf"(?:{PATH.pattern})(?: (?:say|contain|again))?\W*",
    re.IGNORECASE,
)
"""The whole of a request for what is in a file."""
ONLY_DELETES: Final = re.compile(
    r"please|can|could|you|delete|remove|erase|trash|discard|throw|away|out|get|rid|of|from|in|the|my|files?"
    r"|folder|directory|and|for|me|puoi|per|favore|elimina|cancella|rimuovi|butta|via|il|lo|la|l|i|e|da|dal"
    r"|dalla|nella|nel|cartella|mio|mia",
    re.IGNORECASE,
)
"""Words of a request to delete that says no more than which files are meant."""
DELETES_IT: Final = re.compile(
    r"\b(?:delete|remove|erase|trash|throw|get rid of)\s+(?:it|this|that|the (?:same|folder|file))\b"
    r"|\b(?:cancell|elimin|rimuov|butt|togl)\w{0,4}l[oa]\b",
    re.IGNORECASE,
)
"""A pronoun for what is to be deleted."""
EDITS: Final = re.compile(
    r"\b(?:edit|chang|replac|updat|fix|correct|rewrit|overwrit|translat|convert|append|add|sort|format|clean|remov"
    r"|insert|(?:in(?:to)?|of) (?:each|every|all)|modif|sostitu|corregg|tradu|aggiung|aggiorn|riscriv|ordin"
    r"|togli|rimuov)\w*",
    re.IGNORECASE,
)
"""What is done to files that a request names by their kind, or not at all."""
_FORMS: Final = r"(?:lista?|elenco|array|dict(?:ionary)?|tuple|object|oggetto)"
ASKS_FOR_DATA: Final = re.compile(
    r"(?<![\w.])(?:(?:geo)?json[l5]?|raw|grezz[aeio]|bruto|format[oi]?|array"
    rf"|(?:as|into|come|return|give|output|print)(?: \w+){{0,2}} {_FORMS})\b|\bto \.\w+|[\[{{]",
    re.IGNORECASE,
)
"""Words of a request for data or a form of its own; names of files, "a.json", do not count."""

MARKUP: Final = re.compile(r"<|\b(?:x?html|xml|svg|tags?|elements?|element[oi]|markup)\b", re.IGNORECASE)
"""What asks for markup around a text."""

# Texts that are written, passed on and sent

TEXT_NOUN: Final = r"(?:the (?:text|words?|line|sentence)|il testo|le parole|la frase|la riga)"
DICTATED: Final = re.compile(
    # a run of spaces is matched in one way, so that no request takes more than linear time
    rf"\b(?={WRITE}|{TEXT_NOUN})(?:{WRITE}\s++)?+(?P<marker>{TEXT_NOUN}\s++)?+"
    r"(?P<text>[^\n\"'`“«]{1,400}?)"
    rf"(?<=\S)\s++(?:to|in|into|on|as|nel|su|sul)\s+(?:the file |file )?(?:{PATH.pattern})",
    re.IGNORECASE,
)
"""A text that is to be written to a file: "save the text oats and honey to list.txt"."""
DETERMINED: Final = re.compile(
    r"(?:an?|the|some|my|our|your|his|her|its|their|this|that|these|those|both|all|each|every|any|several|\d+"
    rf"|{'|'.join([*NUMBER_WORDS][:10])}|un[ao]?|due|tre|alcun[ei]|qualche|ogni|tutt[oiae]"
    r"|mi[oae]i?|il|lo|la|i|gli|le)\b",
    re.IGNORECASE,
)
"""What describes a text begins with an article or a number: "a poem"."""
ABOUT: Final = re.compile(
    rf"\b(?:about|of|on|for|su[li]?|sull[ae]|di|de[il]|per)\b|{PATH.pattern}", re.IGNORECASE
)
"""What describes a text may say what it is about."""
PREPOSITIONS: Final = frozenset({"for", "of", "to", "in", "per", "di"})
"""Words that a text may have beside those that are dictated."""
SAYS_OF_IT: Final = re.compile(r"\W+(?:is|are|was|were|è|sono|era|erano)\b[^\n:]*\Z", re.IGNORECASE)
"""A sentence about what is before it: "… are great choices"."""
REFERS_BACK: Final = re.compile(
    r"\b(?:it|them|(?:the|its|their) (?:same )?(?:texts?|contents?|results?|answers?|names?|list)|the same"
    r"|what (?:is|it says|they say)|what's|(?:lo|il) (?:stesso|testo|contenuto|risultato)|la lista|i nomi"
    r"|(?:ciò|quello) che|cosa (?:c'è|dice))\b",
    re.IGNORECASE,
)
"""What refers to something that was read: "mail it to Anna"."""
REWORDED: Final = re.compile(
    r"\b(?:summar|short|brief|translat|repl(?:y|ies)|answer|respon|count|how many|riassu|sintesi|traduc|rispo"
    r"|quant[ie])",
    re.IGNORECASE,
)
"""What is not passed on as it is: a summary, a reply, a number."""
ONESELF: Final = re.compile(
    r"\b(?:me|myself|us|ourselves|my (?:own|e-?mail|inbox|address)|mi|ci|io|noi|fammi|dammi|vorrei|I want"
    r"|I['’]d like|mi[ao] (?:e-?mail|posta|casella)|\w+[aei]rmi"
    r"|(?:manda|invia|scrivi|spedisci|inoltra|gira|da|di)m[ie]\w*)\b",
    re.IGNORECASE,
)
"""The person who asks, as one that something is sent to."""
_ADDRESSES: Final = rf"(?:both\s+)?{ADDRESS}(?:(?:\s*,\s*|\s+(?:and|e)\s+){ADDRESS})*"
MESSAGE: Final = re.compile(
    r"\b(?:let|tell|inform|notify|(?:(?:e-?)?mail|message|note|write)(?:\s+to)?|avvisa|informa"
    rf"|(?:scrivi|comunica)\s+a|di(?:['’]|re)?\s+a)\s+(?P<recipients>{_ADDRESSES})(?:\s+know)?"
    r"(?:\s*:\s*+(?!(?:say|ask|thank|invite|remind|greet|chiedi|saluta)\b)"
    r"|\s++(?:that|che|saying(?:\s++that)?)\s++|\s++(?=(?:I|we|he|she|they|you|there|my|our)\b))"
    r"(?P<text>[^\s!?;\"“«][^\n!?;\"“«]{2,299}?)\s*+[.!;]?\s*+\Z",
    re.IGNORECASE,
)
"""A message that is dictated: "tell a@b.org that I'm late"."""
QUOTED_MESSAGE: Final = re.compile(
    r"\W*(?:[^\W\d_]+\W+){0,3}?(?:(?:e-?)?mail|send|message|text|manda|invia|spedisci)\s+"
    r"(?:(?:the|il|lo)\s+(?:text|message|words?|testo|messaggio)\s+)?"
    rf"[\"“«'`](?P<text>[^\n\"”»`]{{1,200}})[\"”»'`]\s+(?:to|a|ad)\s+(?P<recipients>{_ADDRESSES})"
    r"\W*(?:please|thanks|thank you|per favore|grazie)?\W*",
    re.IGNORECASE,
)
"""The whole of a request that mails a text in quotes."""
GREETING: Final = re.compile(
    r"\W*+(?:(?:hi|hello|hey|dear|sorry|ciao|salve|buongiorno|car[oa])\b[ ,]*+\w*+\W*+)*+", re.IGNORECASE
)
APOLOGY: Final = re.compile(
    r"\b(?:I|we)(?:['’](?:m|re)| am| are)? (?:can['’]?t|cannot|unable to|not able to) (?:\w+ )?"
    r"(?:assist|fulfill?|do that|help (?:you )?with (?:that|this|it)|(?:send|access|provide|process)"
    r" (?:\w+ ){0,2}(?:(?:e-?)?mails?|messages?|files?|calendar|requests?|that|this))\b"
    r"|\bnon posso (?:\w+ )?(?:aiutart\w*|(?:inviar|mandar)\w* (?:e-?mail|messagg\w*)"
    r"|accedere a\w* (?:file|posta|calendario))",
    re.IGNORECASE,
)
"""What a model writes that cannot do something."""
NOT_FOUND: Final = re.compile(
    r"\b(?:I|we) (?:can['’]?t|cannot|could(?:n['’]?t| not)|was(?:n['’]?t| not) able to|am unable to)"
    r" (?:find|locate|open|read|access)\b|\bnon (?:riesco a|posso|ho potuto) (?:trov|apr|legg|acced)\w*",
    re.IGNORECASE,
)
"""What a model writes into a mail in place of what it has not read."""
SAYS_CANNOT: Final = re.compile(
    r"\b(?:sorry|apolog\w*|can['’]?t|cannot|could(?:n['’]?t| not)|won['’]?t|unable|able|declin\w*|refus\w*"
    r"|scus\w*|dispiac\w*|non (?:poss\w+|riesc\w+))\b",
    re.IGNORECASE,
)
"""A request that has an apology of its own."""
