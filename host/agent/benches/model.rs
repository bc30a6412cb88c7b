//! What the client and all that stands around it cost a call: the same request over the same kind of
//! connection, once with a bare HTTP client that reads the answer to its end, and once through client,
//! retry, circuit breaker and limits, a pool and a router. The server answers at once.
//!
//! `cargo bench -p toolhold-agent --bench model`
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot go on should say so"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use toolhold_agent::router::{Class, Router, RouterPolicy, Rules};
use toolhold_model::route::{
    Endpoint, EndpointLimits, EndpointPolicy, Member, Pool, PoolPolicy, Retry, RetryPolicy,
};
use toolhold_model::{
    ChatMessage, ChatRequest, HttpTransport, Model, OpenAiModel, RunContext, Timeouts,
};

/// Chunks of an answer, as many as a short reply of the schema contract has.
const CHUNKS: usize = 32;

/// An endpoint that has read a request when it has the bytes that its head announces, and answers the same
/// to everything. On a thread of its own: it is not what is measured.
fn serve() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream));
            }
        });
    });
    receiver.recv().unwrap()
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let response = response();
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = request_end(&buffer) {
                break end;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        buffer.drain(..end);
        stream.write_all(response.as_bytes()).await?;
    }
}

fn request_end(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
    let length = text.split_once("content-length: ")?.1;
    let length: usize = length.split("\r\n").next()?.parse().ok()?;
    (buffer.len() >= head + length).then_some(head + length)
}

fn response() -> String {
    let mut body = String::new();
    for _ in 0..CHUNKS {
        body += "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n";
    }
    body += "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    body += "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":900,\"completion_tokens\":32}}\n\n";
    body += "data: [DONE]\n\n";
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn request() -> ChatRequest {
    let turns = (0..20).map(|turn| {
        let text = format!("Turn {turn}: {}", "some words of a conversation ".repeat(8));
        match turn % 2 {
            0 => ChatMessage::user(text),
            _ => ChatMessage::assistant(text),
        }
    });
    ChatRequest {
        max_tokens: Some(256),
        ..ChatRequest::new("m", turns.collect())
    }
}

fn endpoint(address: SocketAddr) -> Arc<Endpoint> {
    let url = format!("http://{address}/v1");
    let transport = HttpTransport::new(&url, None, Duration::from_secs(2)).unwrap();
    let client = OpenAiModel::new(Arc::new(transport), "m", Timeouts::default());
    let policy = EndpointPolicy {
        limits: EndpointLimits {
            concurrent_requests: 64,
            requests_per_minute: 100_000_000,
            tokens_per_minute: u64::MAX,
            ..EndpointLimits::default()
        },
        window: Some(32_000),
        ..EndpointPolicy::default()
    };
    Arc::new(Endpoint::new("one", client, policy))
}

fn calls(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let address = serve();
    let request = request();
    let mut group = criterion.benchmark_group("model_call");

    let http = reqwest::Client::new();
    let url = format!("http://{address}/v1/chat/completions");
    group.bench_function("bare_http_client", |bencher| {
        bencher.to_async(&runtime).iter(async || {
            let body = request.body().to_string();
            let sent = http.post(&url).header("content-type", "application/json");
            let response = sent.body(body).send().await.unwrap();
            black_box(response.bytes().await.unwrap())
        });
    });

    let mut through = |name: &str, model: &dyn Model| {
        group.bench_function(name, |bencher| {
            bencher.to_async(&runtime).iter(async || {
                let mut pieces = 0;
                let completion = model.complete(&request, &mut |_| pieces += 1).await;
                assert_eq!(pieces, CHUNKS);
                black_box(completion.unwrap())
            });
        });
    };
    let url = format!("http://{address}/v1");
    let transport = HttpTransport::new(&url, None, Duration::from_secs(2)).unwrap();
    through(
        "client",
        &OpenAiModel::new(Arc::new(transport), "m", Timeouts::default()),
    );
    let retry = Retry::new(endpoint(address), RetryPolicy::default());
    through("client_retry_breaker_limits", &retry);

    let members = (0..4).map(|_| Member {
        endpoint: endpoint(address),
        weight: 1,
    });
    let pool = Pool::new("pool", members.collect(), PoolPolicy::default());
    let class = Class {
        name: "all".into(),
        description: "everything".into(),
        to: "pool".into(),
        model: Arc::new(pool),
        rules: Rules::default(),
    };
    let policy = RouterPolicy {
        picker: None,
        timeout: Duration::from_secs(1),
        default: 0,
    };
    let router = Router::new("router", vec![class], policy).unwrap();
    let session = RunContext {
        task: "anything",
        class: None,
    };
    through(
        "router_pool_and_all",
        router.session(&session).unwrap().as_ref(),
    );
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
