//! A cluster of three nodes: what a tier does there, and a node that ends and comes back.

use std::{
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use radixkv_tiers::{NotGot, RedisTier, Tier};

use super::{
    common::{ABSENT, Bytes, PATIENCE, blocks, does_what_a_tier_does, get_all, layout, put_all},
    server::Real,
};

/// Three nodes with a third of the slots each.
fn cluster() -> Option<Vec<Real>> {
    let node = || {
        let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let alone =
            ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000"];
        let server = Real::start(&[&alone[..], &["--cluster-port", &bus]].concat())?;
        Some((server, bus))
    };
    let nodes = [node()?, node()?, node()?];
    for (index, (server, _)) in nodes.iter().enumerate() {
        let slots = ["0 5460", "5461 10922", "10923 16383"][index];
        assert_eq!(server.say(&format!("CLUSTER ADDSLOTSRANGE {slots}")), "+OK\r\n");
        for (other, bus) in &nodes {
            assert_eq!(server.say(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port())), "+OK\r\n");
        }
    }
    let nodes = Vec::from(nodes.map(|(server, _)| server));
    let began = Instant::now();
    let knows_all = |server: &Real| {
        let info = server.say("CLUSTER INFO");
        info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
    };
    while !nodes.iter().all(knows_all) {
        assert!(began.elapsed() < PATIENCE, "no cluster");
        thread::sleep(Duration::from_millis(20));
    }
    Some(nodes)
}

#[test]
fn a_tier_in_a_cluster_does_what_a_tier_does_and_outlives_a_node() {
    let Some(mut nodes) = cluster() else { return };
    let layout = layout(16, 5000);
    let urls = || nodes.iter().map(Real::url).collect::<Vec<_>>();
    let tier: Tier<Bytes> = RedisTier::cluster(urls(), "kv", layout.clone()).timeout(PATIENCE).open().unwrap();
    does_what_a_tier_does(&tier);
    let error = RedisTier::cluster(urls(), "kv", super::common::layout(32, 5000)).open::<Bytes>().unwrap_err();
    assert!(error.to_string().starts_with("the Redis cluster kv holds blocks of block size \"16\""), "{error}");
    let all = blocks(&layout, 60);
    put_all(&tier, &all, None);
    // They are spread over the nodes.
    assert!(nodes.iter().all(|node| node.say("DBSIZE").trim_start_matches(':').trim().parse::<usize>().unwrap() > 5));

    let brief = RedisTier::cluster(urls(), "kv", layout).timeout(Duration::from_millis(500)).open::<Bytes>().unwrap();
    nodes[1].kill();
    let ends = get_all(&brief, &all);
    assert!(ends.iter().all(|end| matches!(end, Ok(()) | Err(NotGot::Failed(_)))), "{ends:?}");
    nodes[1].restart();
    let began = Instant::now();
    loop {
        let ends = get_all(&brief, &all);
        assert!(ends.iter().all(|end| matches!(*end, Ok(()) | ABSENT | Err(NotGot::Failed(_)))), "{ends:?}");
        if ends.iter().all(|end| matches!(*end, Ok(()) | ABSENT)) && ends.contains(&Ok(())) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{ends:?}");
        thread::sleep(Duration::from_millis(50));
    }
}
