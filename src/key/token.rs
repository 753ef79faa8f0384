/// A token id, as the tokenizer produces it.
pub type Token = u32;
