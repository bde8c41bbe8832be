-- Reconciliation reads the payments of a range of time, a page at a time, in this order.
CREATE INDEX payments_by_time ON payments (created_at, payment_id);
