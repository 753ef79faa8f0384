//! The code of a package by its modules, read from src/lib.rs along `mod`, without test modules.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, ItemUse, Meta, Token, UseTree, ext::IdentExt, punctuated::Punctuated};

/// One name that a `use` brings into a module.
#[derive(Clone)]
pub struct Use {
    pub path: String,
    pub name: String,
    pub is_public: bool,
}

/// A module's code without the modules inside it: its `use` items, and the tokens of the rest.
/// A path is one token, `crate::cache::Lease`.
#[derive(Clone, Default)]
pub struct Module {
    pub file: String,
    pub uses: Vec<Use>,
    pub tokens: Vec<String>,
}

/// The modules by their paths (`crate::tree::word`), and the texts that hide where a path leads.
#[derive(Clone, Default)]
pub struct Source {
    pub modules: BTreeMap<String, Module>,
    pub faults: Vec<String>,
}

/// Reads a file of src by its path there, if it exists.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Source {
    pub fn read(read: ReadFile) -> Self {
        let mut source = Self::default();
        source.read_file("crate", "lib.rs", read);
        source
    }

    /// Adds the modules of a file and of its child modules. `here` is the path of the file's module.
    pub fn read_file(&mut self, here: &str, file: &str, read: ReadFile) {
        self.modules.retain(|_, module| module.file != file);
        match read(file).as_deref().map(syn::parse_file) {
            Some(Ok(parsed)) => self.add(here, file, &parsed.attrs, parsed.items, read),
            Some(Err(error)) => self.faults.push(format!("src/{file}: does not parse: {error}")),
            None => self.faults.push(format!("src/{file}: no such file")),
        }
    }

    fn add(&mut self, here: &str, file: &str, attributes: &[Attribute], items: Vec<Item>, read: ReadFile) {
        let mut code: TokenStream = attributes.iter().map(ToTokens::to_token_stream).collect();
        for item in items {
            match item {
                Item::Mod(module) if module.attrs.iter().any(is_test) => {}
                Item::Mod(module) => {
                    let path = format!("{here}::{}", module.ident.unraw());
                    if let Some((_, items)) = module.content {
                        self.add(&path, file, &module.attrs, items, read);
                        continue;
                    }
                    code.extend(module.attrs.iter().map(ToTokens::to_token_stream));
                    let stem = path["crate::".len()..].replace("::", "/");
                    let by_name = format!("{stem}.rs");
                    let child = if read(&by_name).is_some() { by_name } else { format!("{stem}/mod.rs") };
                    self.read_file(&path, &child, read);
                }
                other => other.to_tokens(&mut code),
            }
        }
        let mut tokens = Vec::new();
        flatten(code, &mut tokens);
        let module = self.modules.entry(here.into()).or_default();
        module.file = file.into();
        let faults = [hidden(&tokens), module.add(tokens)].concat();
        self.faults.extend(faults.iter().map(|fault| format!("src/{file}: {fault}")));
    }
}

impl Module {
    /// The paths in the code; of one part only if that is a root, which a macro may go on from.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let is_path = move |at: &usize| {
            let (token, next) = (&self.tokens[*at], self.tokens.get(at + 1));
            let is_root = ["std", "core", "alloc"].contains(&token.trim_matches(':'));
            (is_root && next.is_none_or(|next| next != "(") || parts(token).count() > 1)
                && (*at == 0 || self.tokens[at - 1] != "$")
        };
        (0..self.tokens.len()).filter(is_path).map(|at| self.tokens[at].trim_matches(':'))
    }

    /// Adds code, and returns what is wrong with its `use` items.
    fn add(&mut self, tokens: Vec<String>) -> Vec<String> {
        let mut faults = Vec::new();
        let mut rest = tokens.into_iter().peekable();
        while let Some(token) = rest.next() {
            if token != "use" || rest.peek().is_some_and(|next| next == "<") {
                self.tokens.push(token);
                continue;
            }
            let text = rest.by_ref().take_while(|token| token != ";").collect::<Vec<_>>().join(" ");
            let before = self.uses.len();
            let is_public = self.tokens.last().is_some_and(|last| last == "pub");
            self.tokens.truncate(self.tokens.len() - usize::from(is_public));
            match syn::parse_str::<ItemUse>(&format!("use {text};")) {
                Ok(item) => self.add_uses(&item.tree, "", is_public),
                Err(_) => faults.push(format!("`use {text}`: a macro chooses what is used")),
            }
            if self.uses[before..].iter().any(|item| item.name == "*") {
                faults.push(format!("`use {text}`: outside tests each name is written out"));
            }
        }
        faults
    }

    fn add_uses(&mut self, tree: &UseTree, head: &str, is_public: bool) {
        let (last, rename) = match tree {
            UseTree::Path(path) => {
                return self.add_uses(&path.tree, &format!("{head}{}::", path.ident.unraw()), is_public);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|item| self.add_uses(item, head, is_public)),
            UseTree::Name(name) => (name.ident.unraw().to_string(), None),
            UseTree::Rename(renamed) => (renamed.ident.unraw().to_string(), Some(renamed.rename.to_string())),
            UseTree::Glob(_) => ("*".into(), None),
        };
        let path = if last == "self" { head.trim_end_matches("::").into() } else { format!("{head}{last}") };
        let name = rename.unwrap_or_else(|| parts(&path).next_back().unwrap_or_default().into());
        self.uses.push(Use { path, name, is_public });
    }
}

/// The parts of a path, also of one that begins with `::`.
pub fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split(':').filter(|part| !part.is_empty())
}

/// Whether an attribute is `cfg(test)`, or `cfg(all(...))` with `test` in it.
fn is_test(attribute: &Attribute) -> bool {
    let is_named = |meta: &Meta| matches!(meta, Meta::Path(path) if path.is_ident("test"));
    let all = |list: &syn::MetaList| list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<Meta>().is_ok_and(|meta| match &meta {
            Meta::List(list) if list.path.is_ident("all") => all(list).is_ok_and(|parts| parts.iter().any(is_named)),
            _ => is_named(&meta),
        })
}

/// Adds the tokens of code, without `r#`, the texts of literals, the `$` of `$crate`, and the
/// `(crate)` of `pub(crate)`.
fn flatten(code: TokenStream, tokens: &mut Vec<String>) {
    let mut is_colon = false;
    for tree in code {
        let was_colon = std::mem::take(&mut is_colon);
        let mut none = String::new();
        let last = tokens.last_mut().unwrap_or(&mut none);
        match tree {
            TokenTree::Literal(_) => tokens.push("\"\"".into()),
            TokenTree::Ident(name) if last.ends_with("::") || last == "'" => *last += &name.unraw().to_string(),
            TokenTree::Ident(name) if last == "$" && name == "crate" => *last = name.to_string(),
            TokenTree::Ident(name) => tokens.push(name.unraw().to_string()),
            // The second colon of `::` is added to the first, and both to the word before them.
            TokenTree::Punct(sign) if was_colon && sign.as_char() == ':' => {
                tokens.pop();
                match tokens.last_mut() {
                    Some(word) if is_word(word) && word != "use" => *word += "::",
                    _ => tokens.push("::".into()),
                }
            }
            TokenTree::Punct(sign) => {
                is_colon = sign.as_char() == ':' && sign.spacing() == Spacing::Joint;
                tokens.push(sign.to_string());
            }
            TokenTree::Group(group) => {
                let first = group.stream().into_iter().next().map(|token| token.to_string()).unwrap_or_default();
                if last == "pub" && ["crate", "in", "self", "super"].contains(&first.as_str()) {
                    continue;
                }
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace | Delimiter::None => ("{", "}"),
                };
                tokens.push(open.into());
                flatten(group.stream(), tokens);
                tokens.push(close.into());
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|char: char| char.is_alphabetic() || char == '_' || char == ':' && token.len() > 2)
}

/// What in code hides where its paths lead, with the reason why it is refused.
fn hidden(tokens: &[String]) -> Vec<String> {
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let reason = move |at: usize| match parts(token(at)).next_back()? {
        "crate" | "super" if !(token(at).ends_with("::") && token(at + 1) == "{") => {
            Some("stands only before the name of what is used")
        }
        "include" => Some("brings in code that is not read here"),
        "path" if at > 0 && "[(,".contains(token(at - 1)) && token(at + 1) == "=" && token(at + 2) != "=" => {
            Some("puts a module into another file")
        }
        "mod" => Some("names a module inside a macro or a block"),
        _ => None,
    };
    (0..tokens.len())
        .filter_map(move |at| Some(format!("`{} {}`: {}", token(at), token(at + 1), reason(at)?)))
        .collect()
}
