/// A token id, as the tokenizer gives it.
pub type Token = u32;
