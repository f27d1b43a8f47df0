//! Words of other languages than English, by which statements in them are recognised.

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
    portanto het een zijn wij dus att det och ett";

/// Whether a word in lower case is in another language: it has a letter that English lacks, or is frequent there.
pub(crate) fn is_foreign(word: &str) -> bool {
    // A single Greek letter is a name in a formula.
    word.len() > 2 && word.contains(|c: char| c.is_alphabetic() && !c.is_ascii())
        || FREQUENT.split(' ').any(|known| known == word)
}

/// Whether a word in lower case means "answer" in another language.
pub(crate) fn means_answer(word: &str) -> bool {
    static WORDS: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!("^(?:{ANSWER}|(?:{ANSWER_IN_OTHER_SCRIPTS}).*)$")));
    WORDS.is_match(word)
}

/// Whether a statement in another language is a supposition or a denial.
pub(crate) fn doubts(statement: &str) -> bool {
    const WORDS: &str = r"(?i)(?:\b(?:no|si|w[äu]re|würden?|soit|serait|supposons|sea|sería|podría|fosse|sarebbe|seria|falsch|faux|fausse|falso|falsa|errado|beispiel\w*|ejemplo|exemple|esempio|exemplo|например|предположим|неверн\w*|n['’]?est|pas|nicht|kein\w*|wenn|falls|non|se|não|niet|als|nie|jeśli|není|nu|dacă|nem|ha|inte|ikke|om|değil|eğer|bukan|jika|kalau|không|nếu|hindi|kung|sio|если|не|якщо|δεν|αν)\b|不|非|错误|錯誤|間違|如果|若|もし|만약|아니|नहीं|यदि|अगर|যদি|নয়|కాదు|இல்லை|ليس|إذا|لو|نہیں|اگر|نیست|לא|אם|ไม่)";
    regex!(WORDS).is_match(statement)
}

/// Number of words of a sentence. Chinese and Japanese don't separate words by spaces, so two of their characters count as a word.
pub(crate) fn word_count(sentence: &str) -> usize {
    let unspaced = |c: &char| matches!(c, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}');
    sentence.split_whitespace().count() + sentence.chars().filter(unspaced).count() / 2
}
