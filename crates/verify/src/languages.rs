//! Words by which statements in languages other than English are recognised.

use std::sync::LazyLock;

use regex::Regex;

use crate::python_text::{pattern, regex};

/// Words for "answer" in languages that put spaces between words.
pub(crate) const ANSWER: &str = "respuesta|réponse|reponse|antwort|antwoord|resposta|risposta|alternativa|odpowiedź|odpowiedz|odpověď|răspuns(?:ul)?|válasz|svar(?:et)?|vastaus|cevap|cevab[ıi]|yanıt[ıi]?|jawaban(?:nya)?|jawapan(?:nya)?|đáp án|câu trả lời|sagot|jibu|amsa|ìdáhùn|idahun|ответ(?:ом)?|відповідь|απάντηση";

/// Words for "answer" in other scripts, in which words aren't always separated by spaces.
pub(crate) const ANSWER_IN_OTHER_SCRIPTS: &str = "答案|答え|答|正解|回答|解答|정답|답변|답|उत्तर|जवाब|জবাব|উত্তর|సమాధానం|జవాబు|பதில்|விடை|જવાબ|ਜਵਾਬ|ਉੱਤਰ|ಉತ್ತರ|ഉത്തരം|คำตอบ|الإجابة|الاجابة|الجواب|إجابة|جواب|پاسخ|תשובה|התשובה";

/// Words that are frequent in other languages and aren't English.
const FREQUENT: &str = "ich wir sie es ist sind der das dem ein eine einen zu von mit und je nous il elle est sont le la les des du une \
    et donc avec yo nosotros el los las una unos por para tenemos sono gli della che quindi os uma temos logo \
    portanto het een zijn wij dus att det och ett hat haben kostet beträgt ergibt nicht kein pas jest salah bukan tiene hay tem";

/// Whether a word in lower case is in another language: it has a letter that English lacks, is frequent there, or means "answer".
pub(crate) fn is_foreign(word: &str) -> bool {
    // A single Greek letter is a name in a formula.
    word.len() > 2 && word.contains(|c: char| c.is_alphabetic() && !c.is_ascii())
        || FREQUENT.split(' ').any(|known| known == word)
        || means_answer(word)
}

/// Character class of the scripts in which a word may follow a number without a space.
pub(crate) const UNSPACED: &str = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}";

/// Whether a character is a frequent one of the scripts in [`UNSPACED`].
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// Whether a word in lower case means "answer" in another language.
pub(crate) fn means_answer(word: &str) -> bool {
    static WORDS: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!("^(?:{ANSWER}|(?:{ANSWER_IN_OTHER_SCRIPTS}).*)$")));
    WORDS.is_match(word)
}

/// Words of other languages that call an answer wrong.
const WRONG: &str = r"\b(?:falsch|faux|fausse|fals[oaei]s?|incorrect[oaes]*|errad[oa]|błędn\w*|yanlış|salah|невер\w+|неправил\w+|verkeerd|fel)\b|错|錯|不对|不對|不正确|有误|間違|틀|خطأ|ग़?लत|ভুল";

/// Whether a sentence in another language calls the answer before it wrong.
pub(crate) fn condemns(sentence: &str) -> bool {
    sentence.split(|c: char| !c.is_alphabetic()).any(is_foreign)
        && regex!(&format!("(?i){WRONG}")).is_match(sentence)
}

/// Whether a statement in another language is a supposition or a denial.
pub(crate) fn doubts(statement: &str) -> bool {
    const OTHERS: &str = r"\b(?:no|si|w[äu]re|würden?|soit|serait|supposons|sea|sería|podría|fosse|sarebbe|seria|beispiel\w*|ejemplo|exemple|esempio|exemplo|например|предположим|n['’]?est|pas|nicht|kein\w*|wenn|falls|non|se|não|niet|als|nie|jeśli|není|nu|dacă|nem|ha|inte|ikke|om|değil|eğer|bukan|jika|kalau|không|nếu|hindi|kung|sio|если|не|якщо|δεν|αν)\b|(?:大于|小于|至少|至多|超过|不到)[\s是为]*$|^\S{0,2} ?(?:より|以上|以下|未満|を超え|[の的]\S{0,2}倍|보다|이상|이하|미만)|\b(?:mayor|menor|maior|maggiore|minore|supérieure?|inférieure?|doble|double|dobro|doppio|moitié|mitad|metade|metà)(?: (?:que|do|de|di|à|a))?\W*$|では?(?:ない|ありません)\W*$|(?:でしょう|だろう|です)か\W*$|不|非|[^是]说|认为|例如|比如|如果|若|もし|만약|아니|아닙|नहीं|यदि|अगर|যদি|নয়|కాదు|இல்லை|ليس|إذا|لو|نہیں|اگر|نیست|לא|אם|ไม่";
    regex!(&format!("(?i){OTHERS}|{WRONG}")).is_match(statement)
}

/// Returns the ends of words for "answer" in other languages than English, and of the label `A:`.
pub(crate) fn answers(text: &str) -> impl Iterator<Item = usize> {
    let words = regex!(&format!(r"(?im)\b(?:{ANSWER})\b|{ANSWER_IN_OTHER_SCRIPTS}|^\W{{0,4}}(?-i:A)[:：]"));
    words.find_iter(text).map(|word| word.start() + word.as_str().trim_end_matches([':', '：']).len())
}

/// Counts the words of a sentence. Two Chinese, Japanese or Korean characters count as a further word.
pub(crate) fn word_count(sentence: &str) -> usize {
    sentence.split_whitespace().count() + sentence.chars().filter(|c| is_unspaced(*c)).count() / 2
}
