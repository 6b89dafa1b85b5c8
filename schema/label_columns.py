"""The columns of what people said about runs, hosts and results (stdlib only). See `schema.view_columns`."""

from schema.columns import Columns
from schema.columns import ViewColumn as C

LABELS: Columns = (
    C("marked_bad", "boolean", "", "whether somebody marked it as not to be compared; `latest` has none of these"),
    C("mark_reason", "text", "", "why"),
    C("marked_by", "text", "", "who did"),
    C("marked_at", "time", "", "when"),
    C("result_tags", "json", "", "labels of the result, an object"),
    C("notes", "json", "", "notes on the result, a list"),
    C("run_notes", "json", "", "notes on the run"),
    C("host_tags", "json", "", "labels of the host"),
    C("host_notes", "json", "", "notes on the host"),
    C("pruned_at", "time", "", "when its samples and log were dropped to save space"),
)

HOST_LABELS: Columns = (
    C("tags", "json", "", "the host's labels, an object"),
    C("notes", "json", "", "notes on the host, a list"),
)

LABEL: Columns = (
    C("about", "text", "", "what it is about: `run`, `host`, `result`"),
    C("uid", "text", "", "the `run_uid`, `host_uid` or `attempt_uid` of that"),
    C("kind", "text", "", "`tag`, `untag`, `note`, `bad`, `good`"),
    C("name", "text", "", "a tag's name"),
    C("said", "text", "", "a tag's value, a note's text, the reason of a mark"),
    C("author", "text", "", "who said it"),
    C("labelled_at", "time", "", "when"),
    C("labelled_epoch", "integer", "s", "`labelled_at` as seconds from 1970, whole"),
)
