//! A server in one process for two tenants: `cargo run --example tenant_server`.
//!
//! Each tenant has a namespace and a quota. A request waits for its blocks up to a timeout, without
//! blocking a thread. Requests of a tenant at its limit wait in a separate queue and do not delay
//! other tenants. Answers are streamed: a client that reads slowly keeps its request running, and
//! one that disconnects ends it.

use std::time::Duration;

use radixkv::{InsertErrorKind, Namespace, PrefixCache, Quota, ReserveError, Token};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TryRecvError};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

const BLOCK: usize = 16; // tokens in a block
const BLOCKS: usize = 16;
const LIMIT: usize = 8; // blocks that one tenant's running requests may hold

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A message to a client; the end of the stream is the end of the answer.
#[derive(Debug, PartialEq)]
enum Part {
    Started { cached_tokens: usize },
    Token(Token),
    Refused(ReserveError),
    TimedOut,
}

struct Request {
    tenant: Namespace,
    prompt: Vec<Token>,
    new_tokens: usize,
    wait: Duration,
    client: Sender<Part>,
}

/// Serves one request. It holds a lease and blocks only while it runs, and drops both in every
/// case.
async fn serve(cache: PrefixCache, request: Request) -> Result<(), Failure> {
    let Request { tenant, prompt, new_tokens, wait, client } = request;
    // All tokens of the answer are reserved with the prompt, so that the request never waits to
    // grow.
    let known = &prompt[..prompt.len() - 1];
    let start = match timeout(wait, cache.acquire_async(&tenant, known, 1 + new_tokens)).await {
        Ok(Ok(start)) => start,
        Ok(Err(refused)) => return Ok(client.send(Part::Refused(refused)).await?),
        Err(_) => return Ok(client.send(Part::TimedOut).await?),
    };
    let (hit, mut own) = (start.hit, start.blocks);
    yield_now().await; // the engine computes `prompt[hit.len_tokens()..]` into `own`

    let whole = own.split(prompt.len() / BLOCK - hit.blocks().len());
    let inserted = cache.session().insert(hit.lease(), &prompt, whole).map_err(InsertErrorKind::from)?;
    let _running = (inserted.lease, own); // kept until the answer is complete
    if client.send(Part::Started { cached_tokens: hit.len_tokens() }).await.is_err() {
        return Ok(());
    }
    for token in 0..new_tokens as Token {
        // `send` waits while the channel is full, until the client reads; it fails if the client is
        // gone.
        if client.send(Part::Token(token)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Serves requests until all senders of the queue are dropped, then waits for those that run or
/// wait.
async fn run(cache: PrefixCache, mut queue: Receiver<Request>) -> Result<usize, Failure> {
    let mut tasks = JoinSet::new();
    while let Some(request) = queue.recv().await {
        tasks.spawn(serve(cache.clone(), request));
    }
    let mut served = 0;
    while let Some(task) = tasks.join_next().await {
        task??;
        served += 1;
    }
    Ok(served)
}

/// A client's connection to the server.
struct Client {
    queue: Sender<Request>,
    tenant: Namespace,
}

impl Client {
    async fn ask(&self, prompt: Vec<Token>, new_tokens: usize, wait: Duration) -> Result<Receiver<Part>, Failure> {
        let (client, answer) = channel(1);
        let request = Request { tenant: self.tenant.clone(), prompt, new_tokens, wait, client };
        self.queue.send(request).await?;
        Ok(answer)
    }
}

/// Reads an answer to its end, and returns its number of tokens.
async fn tokens_of(mut answer: Receiver<Part>) -> usize {
    let mut tokens = 0;
    while let Some(part) = answer.recv().await {
        tokens += usize::from(matches!(part, Part::Token(_)));
    }
    tokens
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let cache = PrefixCache::builder(BLOCK, BLOCKS).build()?;
    let (queue, requests) = channel(8);
    let server: JoinHandle<Result<usize, Failure>> = tokio::spawn(run(cache.clone(), requests));
    let [alice, bob] = ["alice", "bob"].map(|name| {
        let tenant = cache.namespace(name);
        tenant.set_quota(Quota::default().cached_blocks(LIMIT).pinned_blocks(LIMIT));
        Client { queue: queue.clone(), tenant }
    });
    drop(queue);
    let prompt = |first: Token| (first..first + 96).collect::<Vec<Token>>();
    let minute = Duration::from_secs(60);

    // Alice's first request holds all 8 blocks of her limit until its answer is read.
    let mut first = alice.ask(prompt(0), 32, minute).await?;
    assert_eq!(first.recv().await, Some(Part::Started { cached_tokens: 0 }));
    // Her second request waits, a third one times out, and one that exceeds her limit is refused at
    // once.
    let mut second = alice.ask(prompt(1_000), 16, minute).await?;
    while cache.stats().waiting_requests < 1 {
        sleep(Duration::from_millis(1)).await;
    }
    let mut third = alice.ask(prompt(2_000), 16, Duration::from_millis(20)).await?;
    assert_eq!(third.recv().await, Some(Part::TimedOut));
    let mut beyond = alice.ask(prompt(3_000), 64, minute).await?;
    let refused = ReserveError::OverQuota { requested: 10, pinned: 8, limit: LIMIT };
    assert_eq!(beyond.recv().await, Some(Part::Refused(refused)));

    // Bob's request does not wait behind hers: blocks are free, and his limit is separate.
    assert_eq!(tokens_of(bob.ask(prompt(0), 32, minute).await?).await, 32);
    // A client that disconnects after the first part ends its request.
    let mut left = bob.ask(prompt(0), 32, minute).await?;
    assert_eq!(left.recv().await, Some(Part::Started { cached_tokens: 80 })); // the last block is computed again
    drop(left);
    assert_eq!((second.try_recv(), cache.stats().waiting_requests), (Err(TryRecvError::Empty), 1));

    // Once her first answer is read, her second request starts.
    assert_eq!(tokens_of(first).await, 32);
    assert_eq!(second.recv().await, Some(Part::Started { cached_tokens: 0 }));
    // When no client is left, the server completes the running requests and stops.
    drop((alice, bob));
    assert_eq!(tokens_of(second).await, 16);
    assert_eq!(server.await??, 6);

    cache.settle();
    let stats = cache.stats();
    assert_eq!((stats.reserved_blocks, stats.protected_blocks, stats.waiting_requests), (0, 0, 0));
    assert!(stats.waits >= 2 && stats.over_quota_refusals == 1);
    cache.validate()?;
    println!("6 requests served; waits: {}, {:?} in all", stats.waits, Duration::from_nanos(stats.waited_nanos));
    Ok(())
}
