-- Reconciliation reads the operations of a range of time, a page at a time, in this order.
CREATE INDEX operations_by_time ON operations (created_at, operation_key);
