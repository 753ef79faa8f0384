//! `ratios` with mimalloc in place of the system's allocator: inserts and evictions allocate and
//! free, so that an engine's choice of allocator may show in their times.

#[path = "ratios.rs"]
mod ratios;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    ratios::main();
}
