//! A shop that prices orders: records, variants, enums, flags, results and 64-bit integers in one
//! component that knows nothing of Toolhold.

wit_bindgen::generate!({ world: "shop", path: "wit" });

use exports::demo::shop::orders::{
    Customer, Delivery, Everything, Failure, Guest as Orders, Line, Packing, Priced,
};
use exports::demo::shop::stock::{Amount, Count, Guest as Stock, GuestCount};
use std::cell::Cell;

struct Shop;

impl Orders for Shop {
    fn price(lines: Vec<Line>, customer: Customer, delivery: Delivery) -> Result<Vec<Priced>, Failure> {
        if lines.is_empty() {
            return Err(Failure::Empty);
        }
        lines
            .into_iter()
            .map(|line| priced(line, customer, &delivery))
            .collect()
    }

    fn echo(everything: Everything) -> Everything {
        everything
    }
}

fn priced(line: Line, customer: Customer, delivery: &Delivery) -> Result<Priced, Failure> {
    if line.sku.is_empty() {
        return Err(Failure::NotFound(line.sku));
    }
    let mut notes = Vec::new();
    let mut total = line
        .price
        .checked_mul(i64::from(line.quantity))
        .ok_or(Failure::Overflow)?;
    if let Some(percent) = line.discount {
        // Whole percents are exact; what a fraction of one loses is below a hundredth of a cent.
        total -= (i128::from(total) * (percent * 100.0) as i128 / 10_000) as i64;
        notes.push(format!("{percent} percent off"));
    }
    total = match customer {
        Customer::WalkIn => total,
        Customer::Member => total - total / 10,
        Customer::Staff => 0,
    };
    if line.packing.contains(Packing::FRAGILE) {
        notes.push("packed in foam".into());
    }
    match delivery {
        Delivery::PickUp => {}
        Delivery::Post(to) => notes.push(format!("by post to {}", to.postcode)),
        Delivery::Locker(number) => notes.push(format!("in locker {number}")),
    }
    Ok(Priced {
        sku: line.sku,
        total,
        notes,
    })
}

struct Shelves(Cell<u32>);

impl GuestCount for Shelves {
    fn new() -> Self {
        Self(Cell::new(0))
    }

    fn add(&self, _sku: String) {
        self.0.set(self.0.get() + 1);
    }
}

impl Stock for Shop {
    type Count = Shelves;

    fn price(sku: String) -> Option<Amount> {
        (!sku.is_empty()).then_some(sku.len() as Amount * 100)
    }

    fn finish(count: Count) -> u32 {
        count.get::<Shelves>().0.get()
    }
}

impl Guest for Shop {
    fn hours(weekday: u8) -> String {
        match weekday {
            1..=5 => "nine to five".into(),
            6 => "nine to twelve".into(),
            _ => "closed".into(),
        }
    }
}

export!(Shop);
