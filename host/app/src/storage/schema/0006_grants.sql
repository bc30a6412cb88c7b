-- What a key may use of what modules are given, and where a run's trace begins.

-- JSON, a list of what is allowed (null: all). A column of its own, and not a member of `permits`: a version
-- that does not know it refuses this database, and does not give a key more than it has.
ALTER TABLE keys ADD COLUMN grants TEXT;

-- The span of the run in the form of `traceparent`, for whoever goes on with it.
ALTER TABLE runs ADD COLUMN trace TEXT;
