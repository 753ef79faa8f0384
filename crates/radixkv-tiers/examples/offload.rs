//! Offloads the blocks of a few prompts to a folder, and finds them again: run it twice.
//!
//! `cargo run -p radixkv-tiers --example offload -- FOLDER`

use std::{env, error::Error, time::Duration};

use radixkv_tiers::{Completion, FileTier, Get, Layout, Outcome, Put, RemoteTier};

const BLOCK_BYTES: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: offload FOLDER")?;
    let layout = Layout::new("example", "bf16", 16, BLOCK_BYTES)?;
    let tier = FileTier::new(folder, layout.clone(), 1 << 30).open::<Vec<u8>>()?;
    println!("{} blocks are there", tier.stats().held_blocks);

    // Prompts that share their first 64 tokens: four blocks have the same keys.
    let prompts = [1, 2, 3].map(|last| (0..64).chain([last; 32]).collect::<Vec<u32>>());
    for prompt in &prompts {
        let blocks = layout.blocks("example", prompt);
        let gets = blocks.iter().map(|block| Get { block: block.clone(), buffer: vec![0; BLOCK_BYTES] });
        tier.get_into(gets.collect())?;
        let mut missed = Vec::new();
        for completion in all(&tier) {
            if let Outcome::Got(get, Err(why)) = completion.outcome {
                println!("block {}: {why}", completion.index);
                missed.push(get);
            }
        }
        // An engine computes these; here their bytes are made up.
        let puts = missed.into_iter().map(|Get { block, mut buffer }| {
            buffer.fill(7);
            Put { block, buffer, time_to_live: Some(Duration::from_secs(3600)) }
        });
        tier.put_from(puts.collect())?;
        all(&tier);
    }
    println!("{:#?}", tier.stats());
    Ok(())
}

/// Everything that is in flight.
fn all(tier: &dyn RemoteTier<Vec<u8>>) -> Vec<Completion<Vec<u8>>> {
    let mut done = Vec::new();
    while tier.stats().in_flight > 0 {
        tier.poll(&mut done, Duration::from_secs(1));
    }
    done
}
