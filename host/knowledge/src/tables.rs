//! Which collections' vectors are in memory, within a bound, and how they follow the database.
//!
//! Processes that share a database do not tell each other of changes: a search compares the collection's version in
//! the database with that of the table, which is one small query, and reads what has changed.

use crate::error::SearchError;
use crate::vectors::VectorTable;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex as AsyncMutex;
use toolhold_storage::{Collection, Store};
use uuid::Uuid;

/// Documents, and vectors, of one query.
const PAGE: u32 = 1_000;

/// The tables of the collections that were searched last.
#[derive(Debug)]
pub struct VectorTables {
    most_bytes: usize,
    tables: Mutex<HashMap<Uuid, KeptTable>>,
    /// One collection is read by one search at a time; the others of it wait.
    reading: Mutex<HashMap<Uuid, Arc<AsyncMutex<()>>>>,
    clock: AtomicU64,
}

#[derive(Debug, Clone)]
struct KeptTable {
    version: u64,
    table: Arc<VectorTable>,
    /// When it was used last, in searches.
    used: u64,
}

impl VectorTables {
    /// Keeps at most `most_bytes` between searches. A table that is larger is read for each search.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            tables: Mutex::default(),
            reading: Mutex::default(),
            clock: AtomicU64::new(0),
        }
    }

    /// The vectors of the documents that are visible now.
    pub async fn of(
        &self,
        store: &Store,
        collection: &Collection,
        dimensions: usize,
    ) -> Result<Arc<VectorTable>, SearchError> {
        let Some(version) = store.collection_version(collection.id).await? else {
            return Ok(Arc::new(VectorTable::new(dimensions)));
        };
        if let Some(table) = self.current(collection.id, version) {
            return Ok(table);
        }
        let turn = self.turn(collection.id);
        let held = turn.lock().await;
        // The search before this one may have read it.
        if let Some(table) = self.current(collection.id, version) {
            return Ok(table);
        }
        let old = self.tables.lock().remove(&collection.id);
        let mut table = match old {
            Some(old) => Arc::unwrap_or_clone(old.table),
            None => VectorTable::new(dimensions),
        };
        // As its owner: all readers share the table, and what one of them may see is asked where passages are read.
        let visible = visible(store, collection).await?;
        for document in table.retain(&visible) {
            read(store, &collection.owner, document, &mut table).await?;
        }
        let table = Arc::new(table);
        self.keep(collection.id, version, table.clone());
        drop(held);
        self.reading
            .lock()
            .retain(|_, turn| Arc::strong_count(turn) > 1);
        Ok(table)
    }

    fn current(&self, collection: Uuid, version: u64) -> Option<Arc<VectorTable>> {
        let mut tables = self.tables.lock();
        let kept = tables.get_mut(&collection)?;
        kept.used = self.clock.fetch_add(1, Ordering::Relaxed);
        (kept.version == version).then(|| kept.table.clone())
    }

    fn turn(&self, collection: Uuid) -> Arc<AsyncMutex<()>> {
        self.reading.lock().entry(collection).or_default().clone()
    }

    fn keep(&self, collection: Uuid, version: u64, table: Arc<VectorTable>) {
        if table.bytes() > self.most_bytes {
            return;
        }
        let mut tables = self.tables.lock();
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        tables.insert(
            collection,
            KeptTable {
                version,
                table,
                used,
            },
        );
        while tables
            .values()
            .map(|kept| kept.table.bytes())
            .sum::<usize>()
            > self.most_bytes
        {
            let oldest = tables.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(collection, _)| *collection) else {
                return;
            };
            tables.remove(&oldest);
        }
    }
}

async fn visible(store: &Store, collection: &Collection) -> Result<Vec<Uuid>, SearchError> {
    let (mut all, mut after) = (Vec::new(), Uuid::nil());
    loop {
        let page = store
            .visible_documents(&collection.owner, collection.id, after, PAGE)
            .await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = *last;
        all.extend(page);
    }
}

async fn read(
    store: &Store,
    owner: &str,
    document: Uuid,
    table: &mut VectorTable,
) -> Result<(), SearchError> {
    let mut next = 0;
    loop {
        let rows = store.vectors(owner, document, next, PAGE).await?;
        for row in &rows {
            table.push(row.passage, document, &row.vector)?;
            next = row.number + 1;
        }
        if rows.len() < PAGE as usize {
            return Ok(());
        }
    }
}
