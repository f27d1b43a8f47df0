//! Chat templates compared with the output of transformers (chat.json, made by make_chat.py).

use fgrpo_eval::dataset::Message;
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::{ChatOptions, ChatTemplate};
use serde::Deserialize;
use serde_json::{Value, json};
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
    let golden: Golden = serde_json::from_str(include_str!("chat.json")).unwrap();
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

#[test]
fn dates_are_written_as_python_writes_them_or_refused() {
    let write = |format: &str| {
        let template = ChatTemplate::new(&format!("{{{{ strftime_now('{format}') }}}}"), "", "");
        let options = ChatOptions { date: "2026-07-04".to_owned(), ..ChatOptions::default() };
        template.render(&[Message::new("user", "a")], &options).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(write("%d.%m. %b %B %Y %y %H:%M:%S 100%%").unwrap(), "04.07. Jul July 2026 26 00:00:00 100%");
    // Python writes microseconds for %f, and chrono writes something else.
    for (format, found) in [("%f", "%f"), ("%+", "%+"), ("%3f", "%3"), ("%Y %", "%")] {
        let error = write(format).unwrap_err();
        assert!(error.contains(&format!("strftime_now: {found} isn't supported")), "{format}: {error}");
    }
}

#[test]
fn line_ends_of_a_template_are_those_of_unix() {
    let of = |source: &str| {
        let messages = [Message::new("user", "a\r\nb")];
        ChatTemplate::new(source, "", "").render(&messages, &ChatOptions::default()).unwrap()
    };
    let lines = "{% for m in messages %}\n<user>\n{{ m.content }}\n{% endfor %}\nend";
    assert_eq!(of(&lines.replace('\n', "\r\n")), of(lines));
    assert_eq!(of(lines), "<user>\na\r\nb\nend");
}

/// A model's folder without weights: a tokenizer of six strings, none of which it marks as special.
fn folder(config: &Value, map: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let vocabulary = json!({"a": 0, "<": 1, "e": 2, ">": 3, "<e>": 4, "<p>": 5, "p": 6});
    let model = json!({"type": "BPE", "vocab": vocabulary, "merges": []});
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"}, "model": model});
    for (name, value) in
        [("tokenizer.json", &tokenizer), ("tokenizer_config.json", config), ("special_tokens_map.json", map)]
    {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    folder
}

#[test]
fn special_tokens_are_those_that_transformers_finds() {
    let template = "{{ bos_token }}{{ pad_token }}{{ messages[0].content }}{{ bos_token is defined }}";
    let prompt = |config: Value, map: Value| {
        let mut config = config;
        config["chat_template"] = template.into();
        let folder = folder(&config, &map);
        let language = Language::read(folder.path(), &[]).unwrap();
        language
            .prompt(&[Message::new("user", "a")], None)
            .map(|tokens| (tokens, language.stop_tokens().to_vec()))
    };
    let ids = |config: Value, map: Value| prompt(config, map).unwrap().0;
    // Named in the configuration, in the map, and in both. A newer configuration takes precedence.
    assert_eq!(ids(json!({"bos_token": "<e>"}), json!({}))[..2], [4, 0]);
    assert_eq!(ids(json!({}), json!({"bos_token": {"content": "<e>"}}))[..2], [4, 0]);
    assert_eq!(ids(json!({"bos_token": "<p>"}), json!({"bos_token": "<e>"}))[..2], [4, 0]);
    let newer = json!({"bos_token": "<p>", "added_tokens_decoder": {}});
    assert_eq!(ids(newer, json!({"bos_token": "<e>"}))[..2], [5, 0]);
    assert_eq!(ids(json!({"pad_token": "<p>", "eos_token": null}), json!({}))[..2], [5, 0]);
    let (_, stop) = prompt(json!({"eos_token": "<e>"}), json!({})).unwrap();
    assert_eq!(stop, [4]);
}

#[test]
fn declared_special_tokens_are_not_split() {
    let ids = |config: &Value| {
        let folder = folder(config, &json!({}));
        Language::read(folder.path(), &[]).and_then(|language| language.encode("a<e>a<p>"))
    };
    assert_eq!(ids(&json!({})).unwrap(), [0, 1, 2, 3, 0, 1, 6, 3]);
    assert_eq!(ids(&json!({"eos_token": "<e>"})).unwrap(), [0, 4, 0, 1, 6, 3]);
    assert_eq!(ids(&json!({"additional_special_tokens": ["<p>"]})).unwrap(), [0, 1, 2, 3, 0, 5]);
    assert_eq!(ids(&json!({"extra_special_tokens": ["<p>"]})).unwrap(), [0, 1, 2, 3, 0, 5]);
    let older = |file: &str, value: Value| {
        let folder = folder(&json!({}), &json!({}));
        std::fs::write(folder.path().join(file), value.to_string()).unwrap();
        Language::read(folder.path(), &[]).and_then(|language| language.encode("a<e>a<p>"))
    };
    let map = json!({"additional_special_tokens": ["<p>"]});
    assert_eq!(older("special_tokens_map.json", map).unwrap(), [0, 1, 2, 3, 0, 5]);
    assert_eq!(older("added_tokens.json", json!({"<p>": 5})).unwrap(), [0, 1, 2, 3, 0, 5]);
    let error = format!("{:#}", older("added_tokens.json", json!({"<p>": 4})).unwrap_err());
    assert!(error.contains("added_tokens.json: \"<p>\" has the id 4"), "{error}");
    let decoder = |id: &str| json!({"added_tokens_decoder": {id: {"content": "<e>", "special": true}}});
    assert_eq!(ids(&decoder("4")).unwrap(), [0, 4, 0, 1, 6, 3]);
    for (config, wanted) in [
        (decoder("5"), "added_tokens_decoder: \"<e>\" has the id 5"),
        (json!({"split_special_tokens": true}), "split_special_tokens: "),
        (json!({"eos_token": 7}), "eos_token: expected"),
    ] {
        let error = format!("{:#}", ids(&config).unwrap_err());
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_stop_text_that_is_an_ordinary_added_token_also_stops_in_pieces() {
    let decoder = json!({"added_tokens_decoder": {"4": {"content": "<e>", "special": false}}});
    let folder = folder(&decoder, &json!({}));
    let language = Language::read(folder.path(), &["<e>".to_owned()]).unwrap();
    assert_eq!(language.stop_tokens(), [4]);
    assert!(language.ended(&[0, 1, 2, 3]) && !language.ended(&[0, 1, 2]));
    assert_eq!(language.answer(&[0, 1, 2, 3]).unwrap(), "a");
    assert_eq!(language.answer(&[0, 4]).unwrap(), "a");
}

#[test]
fn an_answer_keeps_the_tags_of_thoughts_that_are_special_tokens() {
    let tags = [
        "[THINK]",
        "[/THINK]",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "</think>",
        "<end>",
        "<|channel>",
        "<channel|>",
    ];
    let names = ["a", "1", "2"].into_iter().chain(tags);
    let vocabulary: serde_json::Map<String, Value> =
        names.zip(0..).map(|(n, id)| (n.to_owned(), json!(id))).collect();
    let added: Vec<Value> = tags
        .iter()
        .map(|tag| {
            json!({"id": vocabulary[*tag], "content": tag, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let folder = folder(&json!({"eos_token": "<end>"}), &json!({}));
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("tokenizer.json")).unwrap()).unwrap();
    (file["model"]["vocab"], file["added_tokens"]) = (json!(vocabulary), json!(added));
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    let language = |stop: &[&str]| {
        let stop: Vec<String> = stop.iter().map(|text| (*text).to_owned()).collect();
        Language::read(folder.path(), &stop).unwrap()
    };
    let plain = language(&[]);
    assert_eq!(plain.answer(&[3, 1, 4, 2, 8]).unwrap(), "[THINK]1[/THINK]2");
    assert_eq!(plain.answer(&[5, 1, 6, 2]).unwrap(), "<|START_THINKING|>1<|END_THINKING|>2");
    assert_eq!(plain.answer(&[9, 1, 10, 2, 8]).unwrap(), "<|channel>1<channel|>2");
    assert_eq!(plain.decoded(&[1, 7, 2, 8], false).unwrap(), "1</think>2");
    let tags = |text: &str| fgrpo_verify::thoughts::Tags::parse(text).unwrap();
    assert!(plain.check_tags(&tags("[THINK],[/THINK]")).is_ok() && plain.check_tags(&tags("a,b")).is_ok());
    let refused = format!("{:#}", plain.check_tags(&tags("[THINK],<end>")).unwrap_err());
    assert!(refused.contains("task.reasoning: \"<end>\"") && refused.contains("tokenizer.json"), "{refused}");
    // With a stop string, the special tokens before it are removed from the text.
    assert_eq!(language(&["a"]).answer(&[3, 1, 4, 2, 0, 1]).unwrap(), "[THINK]1[/THINK]2");
}

/// A folder with this template.
fn with_template(folder: &std::path::Path, template: &str) -> anyhow::Result<ChatTemplate> {
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    ChatTemplate::open(folder)
}

#[test]
fn the_filter_e_escapes_as_jinjas() {
    let folder = tempfile::tempdir().unwrap();
    for (filter, wanted) in [
        ("e", "&lt;a href=&#39;x/y&#39;&gt; &amp; &#34;z&#34;"),
        ("escape", "&lt;a href=&#39;x/y&#39;&gt; &amp; &#34;z&#34;"),
        ("e|e", "&lt;a href=&#39;x/y&#39;&gt; &amp; &#34;z&#34;"),
    ] {
        let template =
            with_template(folder.path(), &format!("{{{{ messages[0].content|{filter} }}}}")).unwrap();
        let messages = [Message::new("user", "<a href='x/y'> & \"z\"")];
        assert_eq!(template.render(&messages, &ChatOptions::default()).unwrap(), wanted, "{filter}");
    }
}

#[test]
fn what_is_iterable_is_what_python_iterates_over() {
    let folder = tempfile::tempdir().unwrap();
    // Nemotron 3 requires this of its tools.
    let template = "{% for x in [none, 1, true, 'a', [], {}, absent] %}{{ x is iterable }} {% endfor %}\
        {% if tools is iterable and tools | length > 0 %}tools{% else %}no tools{% endif %}";
    let template = with_template(folder.path(), template).unwrap();
    let text = template.render(&[Message::new("user", "")], &ChatOptions::default()).unwrap();
    assert_eq!(text, "False False False True True True True no tools");
}

#[test]
fn what_a_template_may_not_use_is_refused_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for (template, said) in [
        ("{% if tools %}{{ tools|filesizeformat }}{% endif %}", "the filter \"filesizeformat\""),
        ("{% filter wordwrap(3) %}x{% endfilter %}", "the filter \"wordwrap\""),
        ("{{ 1 if tools is callable else 2 }}", "the test \"callable\""),
        ("{{ 1 if tools is not callable else 2 }}", "the test \"callable\""),
        ("{%- set row = cycler('a', 'b') -%}", "the function cycler"),
        ("{% if tools %}{{ lipsum() }}{% endif %}", "the function lipsum"),
        ("{% set comma = joiner() %}", "the function joiner"),
    ] {
        let error = format!("{:#}", with_template(folder.path(), template).unwrap_err());
        assert!(error.contains(said) && error.contains("chat_template.jinja"), "{template}: {error}");
    }
    for template in [
        "{# a|nothing, x is nothing #}{{ 'x|nothing' }}{{ \"is 'so' | nothing\" }}{% raw %}{{ x|nothing }}{% endraw %}",
        "{%- for m in messages if m.content is not none and m is defined -%}{{ m.content | trim | upper }}{%- endfor %}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} a | nothing is nothing",
        "{% filter upper %}{x|nothing}{% endfilter %}{% set is_first = true %}{{ is_first }}",
    ] {
        let read = with_template(folder.path(), template).unwrap();
        read.render(&[Message::new("user", "x")], &ChatOptions::default()).unwrap();
    }
    let golden: Golden = serde_json::from_str(include_str!("chat.json")).unwrap();
    for (name, template) in &golden.templates {
        let read = with_template(folder.path(), template);
        assert!(read.is_ok(), "{name}: {:#}", read.unwrap_err());
    }
}
