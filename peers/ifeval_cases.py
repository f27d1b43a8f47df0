"""Writes unlabelled IFEval cases: strings joined from awkward pieces, with instructions whose thresholds are close to
the counts in the string.

    python peers/ifeval_cases.py N SEED > CASES.jsonl
    python peers/ifeval_reference.py label CASES.jsonl > crates/verify/tests/fixtures/ifeval.jsonl
"""

import json
import random
import sys

SENTENCES = [
    "Dr. Maria K. Lopez arrived at 5 p.m. on Monday.",
    "The U.S. economy grew by 3.5 percent, e.g. in Jan. and Feb. of that year.",
    "He asked: \u201cAre you sure?\u201d Then he left.",
    "\u201cNo.\u201d She didn\u2019t wait...",
    "Wait... what? Really?! Yes!!!",
    "(It was raining.) We stayed home.",
    "NASA and the EU signed it; NATO WON'T.",
    "I CAN'T BELIEVE IT'S NOT BUTTER!",
    "Visit www.example.com or mail me@example.org. thanks",
    "Mr. Smith vs. Mrs. Jones, et al., was decided in No. 12 of vol. 3.",
    "Prices rose from $1,000.50 to $2,000.75: a jump of 100%.",
    "The quick brown fox jumps over the lazy dog.",
    "cannot gonna gotta wanna lemme gimme",
    "'Tis the season, isn't it?",
    "First item - second item -- third item \u2014 fourth item.",
    "Ph.D. students like J. R. R. Tolkien.",
    "She said, \"Stop.\" And he did.",
    "\u00abBonjour.\u00bb Il est parti.",
    "A B C D. E F G.",
    "Version 2.0 is out. 3 people came. 4.5 stars.",
    "One sentence without an end",
    "Section 1: the beginning",
    "photography is an art; Photography isn't photographic.",
    "I love pizza \u2764\ufe0f and caf\u00e9s \u2615!",
    "na\u00efve co-operation re-enters mother-in-law's house.",
    "Etc. etc. and so on. . . . The end.",
    "What is 1+1? It is 2, i.e. two.",
    "The St. Louis Blues lost to St. John's. oh no.",
    "Inc. magazine and Acme Corp. merged. Co. too.",
    "[insert name] lives at [address].",
    "[unclosed bracket and [another] one",
    "`code` and ``double`` ticks.",
    "Hello!How are you?Fine.Thanks",
    "\u00bd of 10\u00b2 is 50\u00b3?",
    "STRASSE stra\u00dfe \u1e9e \u0130stanbul \u0131s\u0131.",
    "the bbc and the b.b.c. agreed.",
    "Oh\u2026 well\u2026 fine.",
    "P.S. I forgot. P.P.S Me too.",
    "Rock 'n' roll, the '90s, y'all, o'clock, dogs' bones.",
    "He said ''hi'' and \"bye\".",
]
OTHER = [
    "Das ist ein ganz normaler Satz auf Deutsch, den jeder verstehen kann.",
    "Este es un p\u00e1rrafo en espa\u00f1ol con varias palabras comunes.",
    "Ceci est une phrase fran\u00e7aise tout \u00e0 fait ordinaire.",
    "\u092f\u0939 \u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u090f\u0915 \u0935\u093e\u0915\u094d\u092f \u0939\u0948\u0964",
    "\u042d\u0442\u043e \u043f\u0440\u0435\u0434\u043b\u043e\u0436\u0435\u043d\u0438\u0435 \u043d\u0430 \u0440\u0443\u0441\u0441\u043a\u043e\u043c \u044f\u0437\u044b\u043a\u0435.",
    "\u3053\u308c\u306f\u65e5\u672c\u8a9e\u306e\u6587\u3067\u3059\u3002",
    "\uc774\uac83\uc740 \ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "Hii ni sentensi ya Kiswahili yenye maneno ya kawaida.",
    "\u0e19\u0e35\u0e48\u0e04\u0e37\u0e2d\u0e1b\u0e23\u0e30\u0e42\u0e22\u0e04\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "12345 67890 !!!",
]
LINES = [
    "* first point", "- second point", "** bold line **", "* ", "*", "*a*", "-", "--", "***", "* * *", "******",
    "<<A Title>>", "<< >>", "<<<x>>>", "<<a>> <<b>>", "*highlight one* and **bold two**", "**not closed*", "***both***",
    "  * indented", "\t- tabbed", "```json", "```", "{\"a\": [1, 2.5e3, null]}", "{'a': 1}", "SECTION 2", "Section 3.",
    "# Heading", "My answer is yes.", "My answer is maybe", "P.S. one more thing", "p. p. s more", "PS: x", "",
    "", "   ", "\u00a0", "1. numbered", "Is there anything else I can help with?", "\"quoted\"",
]
LANGUAGES = ["en", "de", "es", "fr", "hi", "ru", "ja", "ko", "sw", "th", "ar", "it"]
KEYWORDS = [
    "pizza", "photography", "the", "a.c", "stra\u00dfe", "istanbul", r"\bart\b", "co-operation", "B.B.C.", "fox|dog",
    "caf\u00e9", "mother-in-law", "isn't", "1+1", "colou?r", "(quick|lazy)", "[aeiou]{2}", r"\d+", "NASA", "^the", "end$",
    "s", "i", "\u0939\u093f\u0928\u094d\u0926\u0940", "I", "what\\?", "(?i:EU)", "oh(?=\u2026)", "n't", "...",
]


def text(rng):
    kind = rng.random()
    if kind < 0.04:
        return rng.choice(["", " ", "\n", "{}", "[1, 2", "\"a\"", "NaN", "```json\n{\"x\": \"y\"}\n```", "\"", "\"\"", "***"])
    if kind < 0.12:
        body = json.dumps({"title": rng.choice(SENTENCES), "n": rng.randint(0, 9)}, indent=rng.choice([None, 2]))
        return rng.choice(["", "```json\n", "```JSON\n", "```", "Here:\n"]) + body + rng.choice(["", "\n```", "```", "\nDone."])
    if kind < 0.25:
        return " ".join(rng.choice(OTHER) for _ in range(rng.randint(1, 4)))
    pieces = []
    for _ in range(rng.randint(1, 14)):
        r = rng.random()
        if r < 0.62:
            pieces.append(rng.choice(SENTENCES))
        elif r < 0.95:
            pieces.append("\n" + rng.choice(LINES) + "\n")
        else:
            pieces.append(rng.choice(OTHER))
    out = ""
    for piece in pieces:
        out += piece + rng.choice([" ", " ", " ", "\n", "\n\n", "", "  ", "\t", "\r\n", "\n***\n", "\n******\n"])
    if rng.random() < 0.1:
        out = out.upper()
    elif rng.random() < 0.1:
        out = out.lower()
    if rng.random() < 0.15:
        out = "\"" + out.strip() + "\""
    if rng.random() < 0.2:
        out = rng.choice(["Sure, here it is:\n", "**Answer**\n\n", "\n"]) + out
    return out


def instruction(rng, response):
    relation = rng.choice(["less than", "at least"])
    near = lambda n: max(1, n + rng.choice([-2, -1, 0, 0, 1, 2]))  # noqa: E731
    words = response.split()
    first = rng.choice(words).strip("\"'.,") if words else "the"
    return rng.choice(
        [
            lambda: ("keywords:existence", {"keywords": rng.sample(KEYWORDS, rng.randint(1, 2))}),
            lambda: ("keywords:frequency", {"keyword": rng.choice(KEYWORDS), "frequency": rng.randint(1, 4), "relation": relation}),
            lambda: ("keywords:forbidden_words", {"forbidden_words": rng.sample(KEYWORDS, rng.randint(1, 3))}),
            lambda: ("keywords:letter_frequency", {"letter": rng.choice("aeiqtzNS"), "let_frequency": rng.randint(1, 40), "let_relation": relation}),
            lambda: ("language:response_language", {"language": rng.choice(LANGUAGES)}),
            lambda: ("length_constraints:number_sentences", {"num_sentences": near(rng.randint(1, 14)), "relation": relation}),
            lambda: ("length_constraints:number_sentences", {"num_sentences": near(response.count(". ") + response.count("? ") + response.count("! ") + 1), "relation": relation}),
            lambda: ("length_constraints:number_paragraphs", {"num_paragraphs": near(response.count("***") + 1)}),
            lambda: ("length_constraints:number_words", {"num_words": near(len(words)), "relation": relation}),
            lambda: ("length_constraints:nth_paragraph_first_word", (lambda n: {"num_paragraphs": n, "nth_paragraph": rng.randint(1, n), "first_word": first or "the"})(near(response.count("\n\n") + 1))),
            lambda: ("detectable_content:number_placeholders", {"num_placeholders": near(response.count("["))}),
            lambda: ("detectable_content:postscript", {"postscript_marker": rng.choice(["P.S.", "P.P.S", "PS:", "Oh"])}),
            lambda: ("detectable_format:number_bullet_lists", {"num_bullets": near(response.count("\n*") + response.count("\n-"))}),
            lambda: ("detectable_format:constrained_response", {}),
            lambda: ("detectable_format:number_highlighted_sections", {"num_highlights": near(response.count("*") // 2)}),
            lambda: ("detectable_format:multiple_sections", {"section_spliter": rng.choice(["Section", "SECTION", "(Section|item)"]), "num_sections": rng.randint(1, 3)}),
            lambda: ("detectable_format:json_format", {}),
            lambda: ("detectable_format:title", {}),
            lambda: ("combination:two_responses", {}),
            lambda: ("combination:repeat_prompt", {"prompt_to_repeat": response.strip()[: rng.randint(1, 40)].upper() or "x"}),
            lambda: ("startend:end_checker", {"end_phrase": rng.choice([response.strip()[-12:] or "x", "help with?", "Thanks."])}),
            lambda: ("startend:quotation", {}),
            lambda: ("change_case:capital_word_frequency", {"capital_frequency": near(sum(w.isupper() for w in words)), "capital_relation": relation}),
            lambda: ("change_case:english_capital", {}),
            lambda: ("change_case:english_lowercase", {}),
            lambda: ("punctuation:no_comma", {}),
        ]
    )()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rng = random.Random(int(sys.argv[2]))
    for key in range(int(sys.argv[1])):
        response = text(rng)
        chosen = [instruction(rng, response) for _ in range(rng.randint(2, 6))]
        case = {
            "key": key,
            "prompt": "p",
            "instruction_id_list": [name for name, _ in chosen],
            "kwargs": [kwargs for _, kwargs in chosen],
            "response": response,
        }
        print(json.dumps(case, ensure_ascii=False))


if __name__ == "__main__":
    main()
