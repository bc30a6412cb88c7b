-- What runs were asked for as responses of OpenAI's API, where their events do not say it.

CREATE TABLE responses (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- JSON: metadata, the response before, and what else a response repeats of its request.
    asked TEXT NOT NULL
);
