//! The bounds of what a guest asks of documents and facts, whatever answers.

use crate::bindings::knowledge::{
    self, Host as _, KnowledgeError, NewFact, Place, Reading, RecallQuery, SearchQuery,
};
use crate::call::{
    CallContext, CallState, Clock, CurrentCall, GrantedKnowledge, GuestLogSink, OtherTools,
    fresh_store,
};
use crate::descriptors::DescriptorShare;
use crate::engine::{Engine, EngineConfig};
use crate::grant::PreparedGrant;
use crate::revocation::Revocation;
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use toolhold_policy::call::{
    FactQuery, FactToRemember, FoundPassages, KnowledgeCall, KnowledgeDocument, KnowledgePassage,
    KnowledgeResult, PassageQuery, ReadPlace, RememberedFact,
};
use toolhold_policy::limits::Limits;
use toolhold_policy::{Caller, Grant, Invocation, KnowledgeAccess, MemoryScope};
use wasmtime::Store;

/// Answers everything, with passages of so many bytes.
#[derive(Debug, Default)]
struct Answers {
    asked: AtomicU32,
    bytes: usize,
    /// The scopes that were recalled.
    scopes: Mutex<Vec<MemoryScope>>,
    /// Answers nothing, ever.
    hangs: bool,
}

impl Answers {
    fn answer<T: Send + 'static>(self: Arc<Self>, value: T) -> KnowledgeResult<T> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(value)
        })
    }

    fn passages(&self) -> Vec<KnowledgePassage> {
        vec![KnowledgePassage {
            id: "7".into(),
            document: Arc::new(KnowledgeDocument::default()),
            number: 0,
            headings: Vec::new(),
            text: "x".repeat(self.bytes),
            starts: 0,
            ends: 1,
        }]
    }
}

impl KnowledgeAccess for Answers {
    fn search(
        self: Arc<Self>,
        call: KnowledgeCall,
        _: PassageQuery,
    ) -> KnowledgeResult<FoundPassages> {
        assert_eq!(
            (call.caller.tenant.as_str(), call.agent.as_str()),
            ("ann", "bank")
        );
        let passages = self.passages();
        self.answer(FoundPassages {
            passages,
            by_vectors: false,
        })
    }

    fn read(
        self: Arc<Self>,
        _: KnowledgeCall,
        _: ReadPlace,
        _: u64,
        _: u64,
    ) -> KnowledgeResult<Vec<KnowledgePassage>> {
        let passages = self.passages();
        self.answer(passages)
    }

    fn remember(
        self: Arc<Self>,
        _: KnowledgeCall,
        fact: FactToRemember,
    ) -> KnowledgeResult<RememberedFact> {
        self.answer(RememberedFact {
            id: "1".into(),
            scope: fact.scope,
            text: fact.text,
            source: String::new(),
            confidence: fact.confidence,
            created_ms: 0,
        })
    }

    fn recall(
        self: Arc<Self>,
        _: KnowledgeCall,
        query: FactQuery,
    ) -> KnowledgeResult<Vec<RememberedFact>> {
        self.scopes.lock().unwrap().extend(query.scopes);
        self.answer(Vec::new())
    }

    fn forget(self: Arc<Self>, _: KnowledgeCall, _: String, _: bool) -> KnowledgeResult<u32> {
        self.answer(1)
    }
}

fn grant(text: &str) -> Grant {
    Grant {
        knowledge: Some(serde_json::from_str(text).unwrap()),
        ..Grant::default()
    }
}

const ALL: &str = r#"{"collections": [{"name": "*"}],
    "memory": {"user": ["recall", "remember", "forget"], "agent": ["recall"]}}"#;

fn call(
    engine: &Engine,
    limits: &Limits,
    grant: &Grant,
    answers: &Arc<Answers>,
    revocation: &Arc<Revocation>,
) -> Store<CallState> {
    let access: Arc<dyn KnowledgeAccess> = answers.clone();
    let arguments = json!({});
    let caller = Caller {
        tenant: "ann",
        session: "",
    };
    let invocation = Invocation {
        caller,
        agent: "bank",
        ..Invocation::new("c", "m.search", &arguments)
    };
    let granted = PreparedGrant::default();
    let timeout = Duration::from_mins(1);
    let context = Box::new(CallContext {
        engine,
        limits,
        granted: &granted,
        descriptors: DescriptorShare::of_module(engine.descriptors()),
        module: (0, "m"),
        is_listing: false,
        begin: None,
        depth: 0,
        document: bytes::Bytes::new(),
        revocation: revocation.clone(),
        caller,
        other_tools: OtherTools::default(),
        knowledge: GrantedKnowledge::new(grant, Some(&access), &invocation),
        current: CurrentCall::default(),
        reserved: None,
        log_sink: GuestLogSink::default(),
        profiler: None,
        debug: None,
        timeout,
    });
    let clock = Arc::new(Clock::new(timeout, engine.pauses().clone(), "".into()));
    fresh_store(context, clock, Instant::now(), None).unwrap()
}

fn query(texts: &[String], collections: &[&str]) -> SearchQuery {
    SearchQuery {
        texts: texts.to_vec(),
        collections: collections.iter().map(|&it| it.to_owned()).collect(),
        labels: Vec::new(),
        by: knowledge::SearchBy::Best,
        most: 5,
        most_of_document: None,
        most_characters: None,
    }
}

fn reading(id: &str, before: u32, after: u32) -> Reading {
    Reading {
        place: Place::Passage(id.to_owned()),
        before,
        after,
    }
}

fn fact(text: &str, scope: knowledge::MemoryScope, confidence: f64) -> NewFact {
    NewFact {
        text: text.to_owned(),
        scope,
        confidence,
        supersedes: None,
    }
}

fn recalling(scopes: &[knowledge::MemoryScope]) -> RecallQuery {
    RecallQuery {
        text: "tea".into(),
        scopes: scopes.to_vec(),
        most: 5,
    }
}

#[tokio::test]
async fn a_question_is_within_its_bounds_before_it_is_asked() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let (answers, limits) = (Arc::<Answers>::default(), Limits::default());
    let mut store = call(&engine, &limits, &grant(ALL), &answers, &Arc::default());
    let state = store.data_mut();
    let long = "x".repeat(16 << 10);
    let mut many = query(&["tea".to_owned()], &[]);
    for most in [0, 51] {
        many.most = most;
        let refused = state.search(many.clone()).await;
        assert!(
            matches!(refused, Err(KnowledgeError::Invalid(_))),
            "{refused:?}"
        );
    }
    let names = vec!["c"; 101];
    for query in [
        query(&[], &[]),
        query(&vec!["x".to_owned(); 9], &[]),
        query(&[long.clone(), "x".to_owned()], &[]),
        query(std::slice::from_ref(&long), &["c"]),
        query(&["x".to_owned()], &names),
    ] {
        let refused = state.search(query).await;
        assert!(
            matches!(refused, Err(KnowledgeError::Invalid(_))),
            "{refused:?}"
        );
    }
    for what in [
        reading("7", 25, 25),
        reading("7", u32::MAX, u32::MAX),
        reading(&long, 0, 0),
    ] {
        let refused = state.read(what).await;
        assert!(
            matches!(refused, Err(KnowledgeError::Invalid(_))),
            "{refused:?}"
        );
    }
    let user = knowledge::MemoryScope::User;
    for new in [
        fact(&"x".repeat((16 << 10) + 1), user, 1.0),
        fact("x", user, f64::NAN),
        fact("x", user, 1.1),
    ] {
        let refused = state.remember(new).await;
        assert!(
            matches!(refused, Err(KnowledgeError::Invalid(_))),
            "{refused:?}"
        );
    }
    assert!(matches!(
        state.forget(long, true).await,
        Err(KnowledgeError::Invalid(_))
    ));
    assert_eq!(answers.asked.load(Ordering::Relaxed), 0);

    // As often as a call may, and no more, of whatever kind.
    for number in 0..100 {
        let done = match number % 4 {
            0 => state
                .search(query(&["tea".to_owned()], &[]))
                .await
                .map(|_| ()),
            1 => state.read(reading("7", 24, 25)).await.map(|_| ()),
            2 => state.remember(fact("x", user, 0.5)).await.map(|_| ()),
            _ => state.recall(recalling(&[])).await.map(|_| ()),
        };
        done.unwrap_or_else(|error| panic!("{number}: {error:?}"));
    }
    for _ in 0..3 {
        let refused = state.forget("1".into(), false).await;
        assert!(
            matches!(refused, Err(KnowledgeError::Quota(_))),
            "{refused:?}"
        );
    }
    assert_eq!(answers.asked.load(Ordering::Relaxed), 100);
}

#[tokio::test]
async fn what_was_not_granted_is_denied_and_told_to_the_operator() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let (answers, limits) = (Arc::<Answers>::default(), Limits::default());
    let tea = ["tea".to_owned()];
    let session = knowledge::MemoryScope::Session;
    let some = grant(
        r#"{"collections": [{"name": "team-*", "rights": ["search"]}], "memory": {"user": ["recall"]}}"#,
    );
    for given in [Grant::default(), some] {
        let is_none = given.knowledge.is_none();
        let mut store = call(&engine, &limits, &given, &answers, &Arc::default());
        let state = store.data_mut();
        let mut refused = vec![
            state.search(query(&tea, &["fees"])).await.map(|_| ()),
            state.search(query(&tea, &["bob/team-a"])).await.map(|_| ()),
            state.read(reading("7", 0, 0)).await.map(|_| ()),
            state.remember(fact("x", session, 1.0)).await.map(|_| ()),
            state.recall(recalling(&[session])).await.map(|_| ()),
            state.forget("1".into(), true).await.map(|_| ()),
        ];
        if is_none {
            refused.push(state.search(query(&tea, &[])).await.map(|_| ()));
            refused.push(state.recall(recalling(&[])).await.map(|_| ()));
        }
        for refused in refused {
            assert!(
                matches!(refused, Err(KnowledgeError::Denied(_))),
                "{refused:?}"
            );
        }
        let denials = std::mem::take(&mut state.denials);
        let told = denials.ended("m", &Ok(()), &<_>::default(), &Grant::default());
        let told: Vec<String> = told.kept.iter().map(ToString::to_string).collect();
        assert!(
            told.iter()
                .any(|it| it.contains("--with-memory session:remember"))
                && told.iter().any(|it| it.contains("--with-collection")),
            "{told:?}"
        );
    }
    assert_eq!(answers.asked.load(Ordering::Relaxed), 0);
    // Without scopes those are recalled that may be.
    let mut store = call(&engine, &limits, &grant(ALL), &answers, &Arc::default());
    store.data_mut().recall(recalling(&[])).await.unwrap();
    let scopes = answers.scopes.lock().unwrap().clone();
    assert_eq!(scopes, [MemoryScope::User, MemoryScope::Agent]);
}

#[tokio::test]
async fn an_answer_is_counted_and_nothing_is_told_after_a_revocation() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let tea = ["tea".to_owned()];
    let limits = Limits {
        kept_bytes: 3 << 20,
        ..Limits::default()
    };
    let large = Arc::new(Answers {
        bytes: 4 << 20,
        ..Answers::default()
    });
    let revocation = Arc::<Revocation>::default();
    let mut store = call(&engine, &limits, &grant(ALL), &large, &revocation);
    let refused = store.data_mut().search(query(&tea, &[])).await;
    assert!(
        matches!(refused, Err(KnowledgeError::Quota(_))),
        "{refused:?}"
    );
    let fits = Arc::new(Answers {
        bytes: 2 << 20,
        ..Answers::default()
    });
    let mut store = call(&engine, &limits, &grant(ALL), &fits, &revocation);
    store.data_mut().search(query(&tea, &[])).await.unwrap();
    assert!(engine.kept().taken() >= 2 << 20);
    store.data_mut().entered();
    assert_eq!(engine.kept().taken(), 0);

    // A question that nobody answers ends with its call, and gives back what it kept.
    let hangs = Arc::new(Answers {
        hangs: true,
        ..Answers::default()
    });
    let mut store = call(&engine, &limits, &grant(ALL), &hangs, &revocation);
    let never = store.data_mut().search(query(&tea, &[]));
    let never = tokio::time::timeout(Duration::from_millis(50), never).await;
    assert!(never.is_err());
    assert_eq!(engine.kept().taken(), 0);

    let mut store = call(&engine, &limits, &grant(ALL), &fits, &revocation);
    revocation.revoke();
    let refused = store.data_mut().search(query(&tea, &[])).await;
    assert!(
        matches!(refused, Err(KnowledgeError::Denied(_))),
        "{refused:?}"
    );
    assert_eq!(fits.asked.load(Ordering::Relaxed), 1);
}
