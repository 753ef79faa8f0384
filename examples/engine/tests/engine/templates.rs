//! Chat templates of hostile folders: what they build is refused before it is long, and a long chat
//! is not.

use std::collections::BTreeMap;

use engine::prompts::Message;
use engine::tokenizer::{Template, TemplateError};

fn render(source: &str, content: &str) -> Result<String, TemplateError> {
    let template = Template::new(source.to_owned(), BTreeMap::new()).expect("a template");
    template.render(&[Message { role: "user".to_owned(), content: content.to_owned() }], true)
}

fn refused(source: &str, reason: &str) {
    match render(source, "content") {
        Err(TemplateError::Refused { reason: given }) => assert!(given.contains(reason), "{given}: {source}"),
        other => panic!("{:?}: {source}", other.map(|text| text.len())),
    }
}

#[test]
fn what_one_step_makes_is_bounded() {
    let step = "one step makes more than";
    refused("{% set a = 'x' * 4000000 %}{{ a.replace('x', 'xxxxxxxxxxxxxxxxxxxx')|length }}", step);
    refused("{% set a = 'x' * 1000000 %}{{ a.replace('', a)|length }}", step);
    refused("{% set s = 'x' * 4000 %}{{ s.join(range(100000))|length }}", step);
    refused("{% set s = 'x,' * 4000000 %}{{ s.split(',')|length }}", step);
    refused("{% set s = 'x ' * 4000000 %}{{ s.split()|length }}", step);
    refused("{% set s = 'x\\n' * 4000000 %}{{ s.splitlines()|length }}", step);
    refused("{{ '{:>400000000}'.format('x')|length }}", step);
    refused("{{ ('{0}' * 100000).format('x' * 1000000)|length }}", step);
    // Lists of lists of lists: short to write, and endless to read.
    let lists: String = "{% set a = [a,a,a,a,a,a,a,a,a,a] %}".repeat(12);
    for read in ["a", "a|string|length", "a|tojson|length", "''.join(a)", "'{}'.format(a)"] {
        refused(&format!("{{% set a = 'x' %}}{lists}{{{{ {read} }}}}"), step);
    }
}

#[test]
fn what_all_steps_make_is_bounded() {
    let fuel = "fuel";
    for steps in
        ["{% set a = a ~ a %}", "{% set a = a + a %}", "{% set a = a * 10 %}", "{% set a %}{{ a }}{{ a }}{% endset %}"]
    {
        refused(&format!("{{% set a = 'xxxxxxxx' %}}{}{{{{ a|length }}}}", steps.repeat(40)), fuel);
    }
    let kept: String = (0..100).map(|at| format!("{{% set a{at} = 'x' * 4000000 %}}")).collect();
    refused(&kept, fuel);
}

#[test]
fn a_long_chat_is_written_whole() {
    let source = "{% for m in messages %}{% set c = m.content | trim %}{% if c.split('</think>')|length == 1 %}{{ '<s>' + m.role + c + '</s>' }}{% endif %}{% endfor %}";
    let content = "word ".repeat(1_600_000);
    assert_eq!(render(source, &content).map(|text| text.len()), Ok(content.len() - 1 + 11));
}
