"""The statements that delete what the ledger no longer keeps. Each reads about as many index entries as it may delete rows.

So a deletion costs the same however much there is; what is out of order in time is deleted a little later. Ages are by the
database's clock. It waits for what another session holds no longer than the ledger's limits allow.
"""

DELETE_BATCHES = """
delete from {schema}.batches b using (
    select oldest.batch from (
        select b.batch, coalesce(b.landed_at, b.created_at) as ended_at from {schema}.batches b
        join {schema}.streams s on s.stream_id = b.stream_id
        where b.stream_id = %(stream)s and b.status = any(%(statuses)s) and b.batch < s.landed_batch and b.batch < (
            select kept.batch from {schema}.batches kept
            where kept.stream_id = %(stream)s and kept.status = %(landed)s
            order by kept.batch desc offset %(fewest)s - 1 limit 1
        )
        order by b.batch limit %(most)s
    ) oldest where oldest.batch < %(before)s or oldest.ended_at < now() - %(age)s
) expired where b.stream_id = %(stream)s and b.batch = expired.batch
"""

DELETE_FAILURES = """
delete from {schema}.failures where id in (
    select oldest.id from (
        select f.id, f.changed_at from {schema}.failures f
        join {schema}.streams s on s.stream_id = f.stream_id
        where f.stream_id = %(stream)s and f.status = %(status)s and f.batch < s.landed_batch
        order by f.batch limit %(most)s
    ) oldest where oldest.changed_at < now() - %(age)s
)
"""

DELETE_DEAD_LETTERS = """
with recursive partitions as (
    (
        select topic, topic_id, partition from {schema}.dead_letters where stream_id = %(stream)s
        order by topic, topic_id, partition limit 1
    )
    union all
    select following.* from partitions p cross join lateral (
        select topic, topic_id, partition from {schema}.dead_letters l
        where l.stream_id = %(stream)s and (l.topic, l.topic_id, l.partition) > (p.topic, p.topic_id, p.partition)
        order by topic, topic_id, partition limit 1
    ) following
)
delete from {schema}.dead_letters where ctid = any(array(
    select oldest.ctid from partitions p cross join lateral (
        select l.ctid, l.created_at from {schema}.dead_letters l
        where (l.stream_id, l.topic, l.topic_id, l.partition) = (%(stream)s, p.topic, p.topic_id, p.partition)
        order by l.record_offset limit greatest(1, %(most)s / (select count(*) from partitions))
    ) oldest
    where oldest.created_at < now() - %(age)s limit %(most)s
))
"""
# Within a partition offsets are about in the order of time, and so are those that are drawn for letters of shards.
