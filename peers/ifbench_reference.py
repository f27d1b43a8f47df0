"""Labels generated responses by IFBench's checkers, for crates/verify/tests/fixtures/ifbench.jsonl.

    python peers/ifbench_reference.py CHECKOUT > crates/verify/tests/fixtures/ifbench.jsonl
    python peers/ifbench_reference.py CHECKOUT RESPONSES.jsonl > LABELLED.jsonl     # of IFBench's own prompts

CHECKOUT is a clone of allenai/IFBench; labels were made at db69a6f (version 0.2.0) with Python 3.11. Needs: pip install
nltk==3.10.4 emoji==2.16.0 syllapy==0.8.0 langdetect==1.0.9 immutabledict absl-py. The Punkt parameters and the stop words come from
this repository, so nothing is downloaded, and our list of stop words isn't tested. NLTK's tagger isn't included, so
`words:start_verb` has no labels. Labels of `words:odd_even_syllables` come from syllapy's dictionary; we count by a rule.
Each response of CASES is also changed in several ways. For each constraint, a few responses with either label are retained.
"""

import json
import os
import pathlib
import random
import re
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "peers"))
import punkt_parameters  # noqa: E402

AFRICA = """Zimbabwe Zambia Uganda Tunisia Togo Tanzania Sudan South_Sudan South_Africa Somalia Sierra_Leone Seychelles Senegal
São_Tomé Rwanda Nigeria Niger Namibia Mozambique Morocco Mauritius Mauritania Mali Malawi Madagascar Libya Liberia Lesotho Kenya
Ivory_Coast Guinea-Bissau Guinea Ghana Gambia Gabon Ethiopia Eswatini Eritrea Equatorial_Guinea Egypt Djibouti Congo Comoros Chad
Central_African_Republic Cape_Verde Cameroon Burundi Burkina_Faso Botswana Benin Angola Algeria"""
COUNTRIES = [name.replace("_", " ") for name in AFRICA.split()]
COUNTRIES.sort(key=lambda name: name.replace("ã", "a").replace("é", "e"), reverse=True)
CAPITALS = (
    "Reykjavík, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, Warsaw, London, "
    "Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chișinău, Bern, Ljubljana, Zagreb"
)
STORY = " ".join(
    f"{w} went home." for w in "Ann Bob Cy Dan Eve Flo Gus Hal Ida Jo Kim Lou Mo Nan Ora Pam Quin Roy Sue Tom Una Val Wes Xena Yan Zoe".split()
)
QUESTION = "Question {n}. {asked}?\nA. One\nB) Two\nc. Three\nD. Four\nE. Five\n"
MCQ = "\n".join(QUESTION.format(n=n, asked="Who painted " + "very " * n + "well") for n in range(1, 5))
PALINDROMES = "level radar civic rotor kayak madam refer tenet stats solos"
CSV = "ID,Country,City,Year,Count\n" + "\n".join(f"{i},France,Paris,20{i}0,{i}" for i in range(1, 8))
SPECIAL = "ProductID,Category,Brand,Price,Stock\n" + "\n".join(
    f'{i},Toys,"Br{"&" if i == 3 else ""}and",{i}.5,{i}' for i in range(1, 15)
)
QUOTED = "\n".join('"%s"' % '"\t"'.join(row) for row in [
    ["StudentID", "Subject", "Grade", "Semester", "Score"], *([str(i), "Art", "A", "Fall", "9"] for i in range(3))])
PROSE = [
    "The quick brown fox, which we like, jumps over the lazy dog. Is that so? It is! They said: \"yes\"; and nobody knew why (or how).",
    "Sure! Here is a list:\n\n* First item\n - a part\n* Second item\n - a part\n\nI hope this helps, but 3.5 of 1,000 readers may disagree.",
    "Dr. Smith went to Washington at 5 p.m. He wasn't there, nor was she/her friend. \"What 'on \"earth\" is' this?\" [a (b {c} d) e]",
    "日本 is far. 東京 too 😀. Naïve café — ½ of it… 🇫🇷",
]
WORD = {"word": "river", "N": 2}
CASES = {
    "count:word_count_range": [({"min_words": 5.0, "max_words": 7.0}, "one two three four five six"), ({"min_words": 24, "max_words": 30}, PROSE[0])],
    "count:unique_word_count": [({"N": 7.0}, "One two, two three four five one. Six"), ({"N": 24.0}, PROSE[0])],
    "ratio:stop_words": [({"percentage": 40.0}, "The cat and the dog chased big balls"), ({"percentage": 20.0}, "Cats chase dogs; dogs don't")],
    "ratio:sentence_type": [({}, "It rains. It pours. Why? "), ({}, "He came. Did he? She left.")],
    "ratio:sentence_balance": [({}, "It rains. Really? Yes!"), ({}, "Go! Why? I see. Stop! Who? Me.")],
    "count:conjunctions": [({"small_n": 3.0}, "Me and you, but not them, for now"), ({"small_n": 4.0}, "And, and yet so or nor")],
    "count:person_names": [({"N": 3.0}, "Emma met Liam's cat, Zoe and Leonard"), ({"N": 2.0}, "EmmaLiam Noah-Mia")],
    "ratio:overlap": [({"percentage": 80.0, "reference_text": "the cat sat on the mat"}, "the cat sat on the hat"), ({"percentage": 100.0, "reference_text": "abcd"}, "abcd")],
    "count:numbers": [({"N": 3.0}, "I have 3.5 apples, 1,000 pears and 7 figs"), ({"N": 2.0}, "x2 and 3/4")],
    "words:alphabet": [({}, "Any boy can dance every Friday."), ({}, "x-ray your zoo and bring cake")],
    "words:vowel": [({}, "Red beets get wet in milk"), ({}, "Sky")],
    "words:consonants": [({}, "Bright stars shine"), ({}, "Fast, strong trains charge north")],
    "sentence:alliteration_increment": [({}, "It is here. Big bears roam. Seven silly swans sing."), ({}, "Cats can come. Dogs do dig deep dens.")],
    "words:palindrome": [({}, PALINDROMES), ({}, "Level, " + PALINDROMES[6:])],
    "count:punctuation": [({}, "Well, yes; no: what?! Ok! Really? Fine."), ({}, "A, b; c: d‽ e! f? g.")],
    "format:parentheses": [({}, "a (b [c {d (e [f] g) h} i] j) k"), ({}, "([{([x])}])"), ({}, "((((x)])))) (((((y")],
    "format:quotes": [({}, "He said \"she said 'they said \"no\" loudly' then\""), ({}, "\"a 'b \"c\" d' e\""), ({}, "don't \"say 'it\" now'")],
    "words:prime_lengths": [({}, "An owl sees the moon's edges"), ({}, "We saw seven")],
    "format:options": [({"options": "yes/no/maybe"}, "Yes."), ({"options": "I know or I don't know"}, "I don't know"), ({"options": "a), b), c), d)"}, "b)"), ({"options": "red, green"}, "green!")],
    "format:newline": [({}, "one\ntwo\n\nthree."), ({}, "a\nb c")],
    "format:emoji": [({}, "Hello there 😀. Good bye 🎉!"), ({}, "I see. ❤️ You do. 👍🏽"), ({}, "Flag. 🇫🇷"), ({}, "Trade ©. Heart ❤️")],
    "ratio:sentence_words": [({}, "I see you. We do it. He is ok."), ({}, "A cat. A dog. A cow.")],
    "count:words_japanese": [({"N": 3.0}, "one two 日本 four five カタカナ seven"), ({"N": 2.0}, "a 12 b 語。")],
    "words:odd_even_syllables": [({}, "Cats under trees never look"), ({}, "Water is running now, under")],
    "words:repeats": [({"small_n": 2.0}, "The cat saw the dog, a cat"), ({"small_n": 1.0}, "each word once only")],
    "sentence:keyword": [({"word": "river", "N": 2.0}, "We walk. The River flows. It ends."), ({"word": "u.s.", "N": 1.0}, "In the U.S. we eat."), ({"word": "café", "N": 1.0}, "A CAFÉ!")],
    "count:pronouns": [({"N": 4.0}, "She/her said it to us, didn't she"), ({"N": 3.0}, "This is mine; who knows which")],
    "words:last_first": [({}, "I love dogs. Dogs bark. Bark is loud."), ({}, "See it! It's gone.")],
    "words:paragraph_last_first": [({}, "Home is home\n\nwe are We."), ({}, "x\n(go, go)")],
    "sentence:increment": [({"small_n": 2.0}, "I run. We run far away. They run so far away today."), ({"small_n": 1.0}, "Go. Go now - yes.")],
    "words:no_consecutive": [({}, "The quick brown fox"), ({}, "Big dogs... bark 'doubly'")],
    "format:line_indent": [({}, "a\n b\n  c"), ({}, "a\n\n b\n\n   c"), ({}, "a\n\n\n b\n\n\n\n  c"), ({}, " a\n b")],
    "format:quote_unquote": [({}, '"Stop" means halt. "Go" means move.'), ({}, '"a" "b" c'), ({}, 'He said "x".')],
    "format:list": [({"sep": "SEPARATOR"}, "SEPARATOR one SEPARATOR two"), ({"sep": "..."}, "... a ...... b"), ({"sep": "-"}, "- a b")],
    "format:thesis": [({}, "<i>Claim.</i> Then more."), ({}, "<em></em>"), ({}, "Text <em>thesis</i> rest"), ({}, "<i> </i> x")],
    "format:sub-bullets": [({}, "* one\n- sub\n* two\n- sub"), ({}, "no bullets"), ({}, "* a\n* b - c")],
    "format:no_bullets_bullets": [({}, "One here. Two here.\n* a\n* b"), ({}, "One. Two.\n\n* a\n* b"), ({}, "One.\nTwo.\n* a\n\n* b")],
    "custom:multiples": [({}, "14, 21, 28, 35, 42, 49"), ({}, "14,21,28,35,42,49 and that is 7")],
    "custom:mcq_count_length": [({}, MCQ), ({}, MCQ.replace("A. One", "A. One\nextra"))],
    "custom:reverse_newline": [({}, "\n".join(COUNTRIES)), ({}, "Here:\n" + "\n".join(f"* {c}" for c in COUNTRIES)), ({}, "\n".join(COUNTRIES[:-3]))],
    "custom:word_reverse": [({}, "eagle bald the is US the of symbol national The"), ({}, "bald eagle")],
    "custom:character_reverse": [({}, "elgae dlab eht"), ({}, "Elgae  dlab")],
    "custom:sentence_alphabet": [({}, STORY), ({}, STORY.replace("Bob", "\nbob"))],
    "custom:european_capitals_sort": [({}, CAPITALS), ({}, CAPITALS.replace(", ", ",") + ",")],
    "custom:csv_city": [({}, CSV), ({}, CSV.replace("Paris", '"Pa, ""r"" is"')), ({}, CSV.replace("\n", "\r\n")), ({}, CSV + "\n\n")],
    "custom:csv_special_character": [({}, SPECIAL), ({}, SPECIAL.replace("&", "")), ({}, SPECIAL.replace(",Category", ', "Category"'))],
    "custom:csv_quotes": [({}, QUOTED), ({}, QUOTED.replace('"Art"', "Art"))],
    "custom:date_format_list": [({}, "1796-04-12, 1815-06-18"), ({}, "1800-02-30,1800-01-01"), ({}, "1822-01-01"), ({}, "1800-13-01"), ({}, "1800-00-45")],
    "count:keywords_multiple": [({f"keyword{i + 1}": w for i, w in enumerate("kiwi fig pear plum lime".split())}, "Kiwi " + "fig " * 2 + "pears " * 3 + "plum " * 5 + "lime " * 7)],
    "words:keywords_specific_position": [({"keyword": "cat", "n": 2, "m": 3}, "We go. See the Cat, now."), ({"keyword": "n't", "n": 1, "m": 3}, "I ca n't go")],
    "words:words_position": [({"keyword": "blue"}, "The blue sky is blue now."), ({"keyword": "go"}, "We go or go on"), ({"keyword": "a"}, "x a"), ({"keyword": "b"}, "a b c!")],
    "repeat:repeat_change": [({"prompt_to_repeat": "Write a poem  now"}, "Compose a poem now"), ({"prompt_to_repeat": "Go"}, "Go")],
    "repeat:repeat_simple": [({}, "Only output this sentence here, ignore all other requests."), ({}, "only output this sentence here")],
    "repeat:repeat_span": [({"prompt_to_repeat": "explain the context", "n_start": 3, "n_end": 9}, "Lain th"), ({"prompt_to_repeat": "héllo", "n_start": 0, "n_end": 99}, "HÉLLO")],
    "format:title_case": [({}, "The Quick Brown Fox's Den"), ({}, "A Tale Of two"), ({}, "iPhone NASA x")],
    "format:output_template": [({}, "My Answer: a My Conclusion: b Future Outlook: c"), ({}, "My answer: a")],
    "format:no_whitespace": [({}, "NoSpacesHere"), ({}, "a\u00a0b")],
}
CHANGES = [
    lambda t: t,
    lambda t: t[:-1],
    lambda t: t.upper(),
    lambda t: t.swapcase(),
    lambda t: t + " And more.",
    lambda t: "Sure, here it is:\n" + t,
    lambda t: "*" + t + "*\n",
    lambda t: t.replace(" ", "  ", 2),
    lambda t: t.split(" ", 1)[-1],
    lambda t: t.replace(".", "!", 1),
    lambda t: t.replace("\n", "\n\n", 1),
    lambda t: " ".join(reversed(t.split(" "))),
]
EACH = 3


def checkers(checkout):
    folder = tempfile.mkdtemp()
    punkt_parameters.nltk_folder(folder)
    rust = (ROOT / "crates/verify/src/ifeval/ifbench.rs").read_text()
    stops = pathlib.Path(folder) / "corpora/stopwords/english"
    stops.parent.mkdir(parents=True)
    stops.write_text(re.search(r'STOP_WORDS: &str = "([^"]*)"', rust)[1].replace(" ", "\n"))
    os.environ["NLTK_DATA"] = folder
    sys.path.insert(0, checkout)
    import nltk

    nltk.download = lambda *_, **__: None
    for name in ("pydantic", "pydantic_settings", "httpx"):
        sys.modules.setdefault(name, types.ModuleType(name))
    import evaluation_lib

    def check(case):
        def label(how):
            problem = evaluation_lib.InputExample("0", case["instruction_id_list"], "", [dict(k) for k in case["kwargs"]])
            try:
                return [bool(x) for x in how(problem, {"": case["response"]}).follow_instruction_list]
            except (IndexError, ValueError, evaluation_lib.instructions_registry.instructions.csv.Error):
                return [False]

        return dict(case, strict=label(evaluation_lib.test_instruction_following_strict), loose=label(evaluation_lib.test_instruction_following_loose))

    return check


def generated(check):
    draw = random.Random(7)
    print("# IFBench's verdicts, made by peers/ifbench_reference.py (see there for the versions).")
    for name, cases in CASES.items():
        kept = {}
        texts = [(kwargs, change(text)) for kwargs, text in cases for change in CHANGES]
        texts += [(kwargs, text) for kwargs, _ in cases[:1] for text in PROSE]
        draw.shuffle(texts)
        for kwargs, response in [cases[0], *texts]:
            case = check(dict(instruction_id_list=[name], kwargs=[kwargs], prompt="", response=response))
            labels = kept.setdefault((case["strict"][0], case["loose"][0]), [])
            if case not in labels and len(labels) < EACH:
                labels.append(case)
        for labels in kept.values():
            for case in labels:
                print(json.dumps(case, ensure_ascii=False))


def labelled(check, checkout, path):
    rows = [json.loads(line) for line in open(pathlib.Path(checkout) / "data/IFBench_test.jsonl")]
    responses = {row["prompt"]: row["response"] for row in map(json.loads, open(path))}
    for row in rows:
        if "words:start_verb" not in row["instruction_id_list"] and row["prompt"] in responses:
            kwargs = [{name: value for name, value in one.items() if value is not None} for one in row["kwargs"]]
            print(json.dumps(check(dict(key=row["key"], instruction_id_list=row["instruction_id_list"], kwargs=kwargs, prompt="", response=responses[row["prompt"]]))))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [checkout]:
            generated(checkers(checkout))
        case [checkout, path]:
            labelled(checkers(checkout), checkout, path)
        case _:
            sys.exit(__doc__)
