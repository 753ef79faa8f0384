//! Texts and tokens of chats, held against those of another program: `chats/golden.py` makes them
//! with Hugging Face's transformers from the templates and the tokenizer beside it.

use std::collections::BTreeMap;

use engine::prompts::Message;
use engine::tokenizer::{Template, TemplateError, Tokenizer};
use serde::Deserialize;
use serde_json::json;

use crate::saved::Directory;

const TEMPLATES: [(&str, &str); 3] = [
    ("reasoning", include_str!("chats/reasoning.jinja")),
    ("headers", include_str!("chats/headers.jinja")),
    ("blocks", include_str!("chats/blocks.jinja")),
];

#[derive(Deserialize)]
struct Golden {
    template: String,
    messages: Vec<BTreeMap<String, String>>,
    answer: bool,
    /// `None` if the template refuses the messages.
    text: Option<String>,
    /// The tokens, or why the template refuses.
    tokens: serde_json::Value,
}

#[test]
fn texts_and_tokens_are_those_of_transformers() {
    let golden: Vec<Golden> = serde_json::from_str(include_str!("chats/golden.json")).expect("chats");
    assert_eq!(golden.len(), 42);
    for (name, source) in TEMPLATES {
        let directory = Directory::new(&format!("chats-{name}"));
        directory.write("tokenizer.json", include_str!("chats/tokenizer.json"));
        directory.write("chat_template.jinja", source);
        let special = [("bos_token", "<|begin_of_text|>"), ("eos_token", "<|im_end|>")];
        directory.write("tokenizer_config.json", json!(BTreeMap::from(special)).to_string());
        let tokenizer = Tokenizer::read(directory.path(), 1_000, 1_000).expect("a tokenizer");
        let special = special.map(|(name, text)| (name, text.to_owned())).into();
        let template = Template::new(source.to_owned(), special).expect("a template");
        for golden in golden.iter().filter(|golden| golden.template == name) {
            let message =
                |m: &BTreeMap<String, String>| Message { role: m["role"].clone(), content: m["content"].clone() };
            let messages: Vec<Message> = golden.messages.iter().map(message).collect();
            let text = template.render(&messages, golden.answer);
            match &golden.text {
                Some(theirs) => {
                    assert_eq!(text.as_ref(), Ok(theirs), "{name}, {messages:?}");
                    let tokens = tokenizer.chat(&messages, golden.answer).expect("tokens");
                    assert_eq!(json!(tokens), golden.tokens, "{name}, {messages:?}");
                }
                None => {
                    let reason = golden.tokens.as_str().expect("a reason").to_owned();
                    assert_eq!(text, Err(TemplateError::Refused { reason }), "{name}, {messages:?}");
                }
            }
        }
    }
}
