"""A ledger in DynamoDB: an object log whose objects are items of a table."""
