use super::*;
use tokio::time::{sleep, timeout};

fn place(folder: &std::path::Path, guest: &str) -> ExclusivePlace {
    let directory = toolhold_files::Directory::resolve(folder)
        .directory
        .unwrap();
    ExclusivePlace {
        id: directory.id(),
        directory: Arc::new(directory.into_file()),
        guest: guest.into(),
    }
}

fn holder(tool: &str) -> Holder {
    Holder {
        lane: Lane {
            group: 1,
            member: "".into(),
            depth: 0,
        },
        tool: tool.into(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn in_ms(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

#[tokio::test]
async fn calls_have_a_directory_one_after_the_other_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let holds = Arc::new(Holds::new(100));
    let (wanted, whom) = (vec![place(folder.path(), "/data")], holder("a.b"));
    let first = holds.take(wanted, &whom, soon()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (holds, order) = (holds.clone(), order.clone());
        let place = place(folder.path(), "/data");
        tasks.push(tokio::spawn(async move {
            let held = holds
                .take(vec![place], &holder("a.b"), soon())
                .await
                .unwrap();
            order.lock().push(number);
            sleep(Duration::from_millis(5)).await;
            order.lock().push(number);
            drop(held);
        }));
        tokio::task::yield_now().await;
    }
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock(), [0, 0, 1, 1, 2, 2, 3, 3]);
}

/// Two tables of holds are two processes: all that they share is the file system.
#[tokio::test]
async fn another_process_waits_until_its_deadline_and_gets_its_turn_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = || vec![place(folder.path(), "/data")];
    let (here, there) = (Arc::new(Holds::new(100)), Holds::new(100));
    let held = here.take(wanted(), &holder("a.b"), soon()).await.unwrap();
    let error = there
        .take(wanted(), &holder("c.d"), in_ms(30))
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("/data") && text.contains("another process"),
        "{text}"
    );
    assert_eq!(error.class(), toolhold_policy::ErrorClass::Retryable);
    let error = here
        .take(wanted(), &holder("c.d"), in_ms(30))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("a call of a.b"), "{error}");
    drop(held);
    // Many calls here, one after the other without a pause, starve nobody there.
    let stop = in_ms(3_000);
    for _ in 0..4 {
        let (here, wanted) = (here.clone(), wanted());
        tokio::spawn(async move {
            while Instant::now() < stop {
                let held = here
                    .take(wanted.clone(), &holder("a.b"), soon())
                    .await
                    .unwrap();
                sleep(Duration::from_millis(2)).await;
                drop(held);
            }
        });
    }
    for _ in 0..3 {
        let held = there.take(wanted(), &holder("c.d"), in_ms(1_500)).await;
        drop(held.unwrap());
    }
}

#[tokio::test]
async fn a_call_that_leaves_the_queue_or_ends_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = || vec![place(folder.path(), "/data"), place(folder.path(), "/same")];
    let holds = Holds::new(100);
    let held = holds.take(wanted(), &holder("a.b"), soon()).await.unwrap();
    for _ in 0..3 {
        let waiter = holder("a.c");
        let waits = holds.take(wanted(), &waiter, soon());
        timeout(Duration::from_millis(20), waits).await.unwrap_err();
    }
    drop(held);
    // Of another process, too.
    let other = Holds::new(100);
    drop(
        other
            .take(wanted(), &holder("a.b"), in_ms(0))
            .await
            .unwrap(),
    );
    drop(
        holds
            .take(wanted(), &holder("a.b"), in_ms(0))
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn a_nested_call_never_waits_for_what_its_callers_have() {
    let root = tempfile::tempdir().unwrap();
    let mut both = Vec::new();
    for name in ["one", "two"] {
        let folder = root.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        both.push(place(&folder, &format!("/{name}")));
    }
    both.sort_by_key(|place| place.id);
    let [early, late] = [0, 1].map(|index| vec![both[index].clone()]);
    let holds = Holds::new(100);
    let inner = holder("inner.tool");
    let outer = holds
        .take(late.clone(), &holder("outer.tool"), soon())
        .await
        .unwrap();
    let denied = outer
        .scope(holds.take(late.clone(), &inner, soon()))
        .await
        .unwrap_err();
    assert!(denied.to_string().contains("own caller"), "{denied}");
    // What is free it may have; for what another has it waits only in the one order.
    drop(
        outer
            .scope(holds.take(early.clone(), &inner, soon()))
            .await
            .unwrap(),
    );
    let other = holds
        .take(early.clone(), &holder("other.tool"), soon())
        .await
        .unwrap();
    let began = Instant::now();
    let busy = outer
        .scope(holds.take(early.clone(), &inner, soon()))
        .await
        .unwrap_err();
    assert_eq!(busy.kind(), "busy");
    assert!(began.elapsed() < Duration::from_secs(5));
    drop((outer, other));
    let outer = holds
        .take(early, &holder("outer.tool"), soon())
        .await
        .unwrap();
    let other = holds
        .take(late.clone(), &holder("other.tool"), soon())
        .await
        .unwrap();
    let later = async {
        sleep(Duration::from_millis(20)).await;
        drop(other);
    };
    let waits = outer.scope(holds.take(late.clone(), &inner, soon()));
    let (held, ()) = tokio::join!(waits, later);
    // And what a call deeper in wants is not what any of its callers has.
    let held = held.unwrap();
    assert!(held.scope(holds.take(late, &inner, soon())).await.is_err());
}
