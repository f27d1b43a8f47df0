//! Chat templates against transformers' renders (golden/chat.json, made by golden/make_chat.py).

use fgrpo_eval::dataset::Message;
use fgrpo_train::language::chat::{ChatOptions, ChatTemplate};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Golden {
    date: String,
    templates: BTreeMap<String, String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<Message>,
    options: Options,
    rendered: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Options {
    add_generation_prompt: bool,
    enable_thinking: Option<bool>,
}

#[test]
fn templates_render_byte_for_byte_as_transformers_renders_them() {
    let golden: Golden = serde_json::from_str(include_str!("../golden/chat.json")).unwrap();
    assert!(golden.cases.len() >= 80);
    for (i, case) in golden.cases.iter().enumerate() {
        let template = ChatTemplate::new(&golden.templates[&case.template], "<bos>", "<eos>");
        let options = ChatOptions {
            add_generation_prompt: case.options.add_generation_prompt,
            enable_thinking: case.options.enable_thinking,
            date: golden.date.clone(),
        };
        let found = template.render(&case.messages, &options);
        match (&case.rendered, &case.error) {
            (Some(wanted), _) => assert_eq!(&found.unwrap(), wanted, "case {i}, {}", case.template),
            (_, Some(wanted)) => {
                let found = found.expect_err("transformers raises here").to_string();
                assert!(found.contains(wanted), "case {i}, {}: {found} for {wanted}", case.template);
            }
            _ => unreachable!("a case is rendered or raises"),
        }
    }
}

#[test]
fn a_folder_without_a_template_is_refused_with_what_was_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let error = format!("{:#}", ChatTemplate::open(folder.path()).unwrap_err());
    assert!(error.contains("chat_template.jinja"), "{error}");
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"chat_template": "{% if %}"}"#).unwrap();
    let error = format!("{:#}", ChatTemplate::open(folder.path()).unwrap_err());
    assert!(error.contains("chat template"), "{error}");
}
