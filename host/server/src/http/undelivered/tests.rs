use super::*;

const PATIENCE: Duration = Duration::from_mins(1);

fn answers() -> UndeliveredAnswers {
    UndeliveredAnswers::new(OnDisconnect::Wait, PATIENCE)
}

/// A run that has begun, and the hold of its client.
fn begun(answers: &UndeliveredAnswers, party: &Arc<str>, digest: &str) -> AnswerHold {
    let (hold, note) = answers.enter(party, digest.to_owned(), Uuid::now_v7(), false);
    note.begun();
    hold
}

fn remembered(answers: &UndeliveredAnswers) -> (usize, usize) {
    let known = answers.lock();
    let count = |of: &AnswersByParty| of.values().map(BTreeMap::len).sum();
    (count(&known.awaited), count(&known.gone))
}

#[tokio::test(start_paused = true)]
async fn the_oldest_equal_request_without_a_client_is_taken_up_once() {
    let (answers, ada) = (answers(), Arc::from("ada"));
    let (first, second) = (begun(&answers, &ada, "d"), begun(&answers, &ada, "d"));
    let runs = (first.run(), second.run());
    drop((second, first));
    let again = answers.take_up(&ada, "d").await.unwrap();
    let other = answers.take_up(&ada, "d").await.unwrap();
    assert_eq!((again.run(), other.run()), runs);
    assert!(again.has_begun().await);
    assert!(answers.take_up(&ada, "d").await.is_none());
    // A client that leaves again comes back again.
    drop(again);
    assert_eq!(answers.take_up(&ada, "d").await.unwrap().run(), runs.0);
}

#[tokio::test(start_paused = true)]
async fn requests_of_another_key_or_with_another_digest_take_nothing_up() {
    let (answers, ada, bob) = (answers(), Arc::from("ada"), Arc::from("bob"));
    drop(begun(&answers, &ada, "d"));
    assert!(answers.take_up(&bob, "d").await.is_none());
    assert!(answers.take_up(&ada, "e").await.is_none());
    assert!(answers.take_up(&ada, "d").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_delivered_answer_is_forgotten() {
    let (answers, ada) = (answers(), Arc::from("ada"));
    begun(&answers, &ada, "d").delivered();
    assert!(answers.take_up(&ada, "d").await.is_none());
    drop(begun(&answers, &ada, "d"));
    answers.take_up(&ada, "d").await.unwrap().delivered();
    assert!(answers.take_up(&ada, "d").await.is_none());
    assert_eq!(remembered(&answers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_waits_until_the_end_of_the_last_connection_is_noticed() {
    let (answers, ada) = (answers(), Arc::from("ada"));
    let hold = begun(&answers, &ada, "d");
    let run = hold.run();
    let again = tokio::spawn({
        let (answers, ada) = (answers.clone(), ada.clone());
        async move { answers.take_up(&ada, "d").await }
    });
    tokio::task::yield_now().await;
    assert!(!again.is_finished());
    drop(hold);
    let hold = again.await.unwrap().unwrap();
    assert_eq!(hold.run(), run);
    // A client that stays is not waited for without end.
    let begin = Instant::now();
    assert!(answers.take_up(&ada, "d").await.is_none());
    let waited = begin.elapsed();
    assert!(
        waited >= NOTICE_TIME && waited < NOTICE_TIME * 2,
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_begins_no_run_is_forgotten() {
    let (answers, ada) = (answers(), Arc::from("ada"));
    let (hold, note) = answers.enter(&ada, "d".into(), Uuid::now_v7(), false);
    drop(hold);
    let again = answers.take_up(&ada, "d").await.unwrap();
    drop(note);
    assert!(!again.has_begun().await);
    drop(again);
    assert_eq!(remembered(&answers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_given_up_unless_it_came_back() {
    let (answers, ada) = (answers(), Arc::from("ada"));
    let hold = begun(&answers, &ada, "d");
    let answer = hold.answer.clone();
    assert!(!answers.give_up(&answer));
    drop(hold);
    let again = answers.take_up(&ada, "d").await.unwrap();
    assert!(!answers.give_up(&answer));
    drop(again);
    assert!(answers.give_up(&answer));
    assert!(answers.take_up(&ada, "d").await.is_none());
    assert_eq!(remembered(&answers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_not_taken_up() {
    let answers = UndeliveredAnswers::new(OnDisconnect::Cancel, PATIENCE);
    let ada = Arc::from("ada");
    let hold = begun(&answers, &ada, "d");
    let answer = hold.answer.clone();
    drop(hold);
    assert!(answers.take_up(&ada, "d").await.is_none());
    assert_eq!(remembered(&answers), (0, 0));
    assert!(answers.give_up(&answer));
}

#[tokio::test(start_paused = true)]
async fn a_run_in_the_background_is_taken_up_whatever_becomes_of_others() {
    let answers = UndeliveredAnswers::new(OnDisconnect::Cancel, PATIENCE);
    let ada = Arc::from("ada");
    let (hold, note) = answers.enter(&ada, "d".into(), Uuid::now_v7(), true);
    note.begun();
    let run = hold.run();
    drop(hold);
    assert_eq!(answers.take_up(&ada, "d").await.unwrap().run(), run);
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_are_remembered_within_bounds() {
    let (answers, ada) = (answers(), Arc::from("ada"));
    let bob: Arc<str> = Arc::from("bob");
    drop(begun(&answers, &bob, "d"));
    let first = begun(&answers, &ada, "first");
    let forgotten = first.answer.clone();
    drop(first);
    for _ in 0..GONE_OF_ONE {
        drop(begun(&answers, &ada, "d"));
    }
    assert_eq!(remembered(&answers), (0, GONE_OF_ONE + 1));
    assert!(answers.take_up(&ada, "first").await.is_none());
    // Its run still ends with its client.
    assert!(answers.give_up(&forgotten));
    for party in 0..GONE / GONE_OF_ONE {
        let party: Arc<str> = format!("key {party}").into();
        for _ in 0..GONE_OF_ONE {
            drop(begun(&answers, &party, "d"));
        }
    }
    assert_eq!(remembered(&answers), (0, GONE));
    // The key that has few keeps them.
    assert!(answers.take_up(&bob, "d").await.is_some());
}
