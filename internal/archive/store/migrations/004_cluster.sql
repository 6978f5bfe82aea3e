-- The only row says which cluster's history this is. Without it, no cluster has claimed the archive yet.
CREATE TABLE cluster (number INTEGER PRIMARY KEY CHECK (number = 1), uid TEXT NOT NULL);
