"""The columns of `results`, `latest`, `failures` and `samples` (stdlib only). See `schema.view_columns`."""

from schema.columns import Columns, Kind
from schema.columns import ViewColumn as C

IDENTITY: Columns = (
    C("run_uid", "text", "", "the run"),
    C("run_name", "text", "", "what the sweep is called"),
    C("tags", "json", "", "the sweep's labels, an object"),
    C("job_uid", "text", "", "the job: one test of one model with one set of settings on one host in one run"),
    C("attempt_uid", "text", "", "the attempt at the job; no two rows have the same"),
    C("attempt_number", "integer", "", "which attempt at the job this was, from 1"),
    C("config_key", "text", "", "hash of test, settings as asked, model and build: equal on all hosts and in all runs"),
    C("replica", "integer", "", "which round of the job this was, from 0, where a sweep measures in rounds"),
    C("host_uid", "text", "", "the machine, whatever it is called"),
    C("host", "text", "", "the machine's name"),
    C("hardware_id", "text", "", "hash of what the machine was made of"),
    C("allocation_id", "text", "", "hash of how much of the machine could be used"),
    C("environment_id", "text", "", "hash of the machine's software and settings"),
    C("build_id", "text", "", "hash of the build of llama.cpp"),
    C("model_identity", "text", "", "the model as planned: `sha256:…` of its content, or `synthetic:…`"),
    C("model", "text", "", "the model's name: its file's, or what the sweep calls it"),
    C("kind", "text", "", "`pp` prefill, `tg` decode, `pg` both in one timed run, `verify` passes over a few tokens"),
    C("test", "text", "", "the test as llama-bench prints it: `pp512`, `tg128 @ d4096`"),
    C("n_prompt", "integer", "tokens", "prompt that is prefilled"),
    C("n_gen", "integer", "tokens", "decoded one after another"),
    C("n_depth", "integer", "tokens", "in the context before the clock starts"),
    C("test_time", "time", "", "when the attempt began"),
    C("ended_at", "time", "", "when the attempt ended"),
    C("build_commit", "text", "", "commit of llama.cpp"),
    C("cpu_info", "text", "", "name of the processor"),
    C("gpu_info", "text", "", "names of the GPUs, joined by commas"),
    C("backends", "text", "", "back ends of llama.cpp, joined by commas"),
)

MODEL: Columns = (
    C("model_filename", "text", "", "path of the file that was measured, on its host"),
    C("model_type", "text", "", "llama.cpp's words for it, such as `llama 1B Q4_K - Medium`"),
    C("model_size", "integer", "bytes", "all tensors, as llama.cpp counts them"),
    C("model_n_params", "integer", "", "parameters, as llama.cpp counts them"),
    C("model_sha256", "text", "", "SHA-256 of the file's content"),
    C("model_synthetic", "boolean", "", "whether the weights are random"),
)

_SETTINGS: dict[str, tuple[Kind, str, str]] = {
    "n_batch": ("integer", "tokens", "submitted at once"),
    "n_ubatch": ("integer", "tokens", "computed at once"),
    "n_threads": ("integer", "", "threads of a decode"),
    "type_k": ("text", "", "type of the cache's keys"),
    "type_v": ("text", "", "type of the cache's values"),
    "n_gpu_layers": ("integer", "", "layers on a GPU"),
    "flash_attn": ("integer", "", "flash attention: 1 on, 0 off"),
    "load_mode": ("text", "", "how the file is loaded: `mmap`, `none`, `mlock`, `mmap+mlock`, `dio`"),
    "env": ("json", "", "variables of the measuring process that can change a figure"),
    "n_threads_batch": ("integer", "", "threads of a prefill"),
    "n_cpu_moe": ("integer", "", "layers whose experts stay in main memory"),
    "split_mode": ("text", "", "how several GPUs share the model: `none`, `layer`, `row`, `tensor`"),
    "main_gpu": ("integer", "", "number of the GPU that does what is not shared"),
    "tensor_split": ("text", "", "shares of the GPUs, joined by a slash"),
    "tensor_buft_overrides": ("text", "", "tensors by pattern and the buffer they go to"),
    "devices": ("text", "", "devices of llama.cpp, joined by a slash"),
    "no_kv_offload": ("text", "", "`on` keeps the cache in main memory"),
    "no_op_offload": ("text", "", "`on` keeps operations on the CPU whose weights lie there"),
    "no_host": ("text", "", "`on` goes without the back end's own host buffers"),
    "embeddings": ("text", "", "`on` computes embeddings"),
    "repack": ("text", "", "`on` lets weights be rearranged for the CPU"),
    "lazy_mode": ("text", "", "whether the weights are loaded when they are first used"),
    "cpu_mask": ("text", "", "CPUs of the computing threads, to base 16; `0x0` is any"),
    "cpu_strict": ("text", "", "`on` gives each thread a CPU of its own"),
    "poll": ("integer", "", "how much threads spin while they wait, 0 to 100"),
    "prio": ("text", "", "priority of the process"),
    "numa": ("text", "", "strategy for memory nodes"),
    "host_settings": ("text", "", "what the host itself was set to, `NAME=VALUE` joined by blanks"),
}

_TEXT_AS_ASKED = ("n_threads", "n_threads_batch", "n_gpu_layers", "flash_attn", "env")
"""Settings that are asked as words, such as `physical`, `all`, `auto`, though they may be numbers in effect."""

SETTINGS: Columns = (
    *(C(name, kind, unit, f"{meaning}, in effect") for name, (kind, unit, meaning) in _SETTINGS.items()),
    *(
        C(f"asked_{name}", "text" if name in _TEXT_AS_ASKED else kind, unit, f"`{name}` as the sweep asked")
        for name, (kind, unit, _) in _SETTINGS.items()
    ),
    C("asked_mmap", "text", "", "`asked_load_mode` in older words: `on`, `off`, else the mode"),
    C("asked_build", "text", "", "name of the build of llama.cpp that was asked for"),
    C("asked_repetitions", "integer", "", "repetitions that were asked for"),
    C("seed", "integer", "", "seed of the token numbers"),
    C("n_parallel", "integer", "", "sequences side by side"),
    C("n_verify", "integer", "tokens", "of one pass of a `verify` test, else 0"),
    C("method", "text", "", "what measured: `llama-cpp-python`, `llama-bench`, or `fake` for the stand-in"),
)

MEASURED: Columns = (
    C("avg_ts", "real", "tokens/s", "mean of the repetitions' rates, over all sequences"),
    C("stddev_ts", "real", "tokens/s", "sample standard deviation of the rates; NULL for one repetition"),
    C("median_ts", "real", "tokens/s", "median of the rates"),
    C("min_ts", "real", "tokens/s", "slowest repetition"),
    C("max_ts", "real", "tokens/s", "fastest repetition"),
    C("seq_ts", "real", "tokens/s", "`avg_ts` of one sequence"),
    C("prompt_ts", "real", "tokens/s", "prefill rate, where the test has a prompt"),
    C("gen_ts", "real", "tokens/s", "decode rate, where the test decodes"),
    C("avg_ns", "integer", "ns", "mean time of a repetition"),
    C("stddev_ns", "integer", "ns", "sample standard deviation of the times"),
    C("n_samples", "integer", "", "repetitions that were measured"),
    C("latency_p50_ms", "real", "ms", "from one decoded token to the next: median"),
    C("latency_p95_ms", "real", "ms", "the same: 95th percentile"),
    C("latency_p99_ms", "real", "ms", "the same: 99th percentile"),
    C("latency_max_ms", "real", "ms", "the same: longest"),
    C("verify_ms", "real", "ms", "one pass over `n_verify` tokens"),
    C("first_token_ms", "real", "ms", "from the prompt to the first token after it, of `pg` tests"),
    C("tokenize_ts", "real", "tokens/s", "turning text into tokens; in no other figure"),
    C("load_seconds", "real", "s", "loading the model"),
    C("fill_seconds", "real", "s", "filling the context to `n_depth`, untimed"),
    C("warmup_seconds", "real", "s", "warm-up before the first repetition, untimed"),
    C("quality", "text", "", "`clean`, `noisy`, `limited`, `throttled`, `contended`: was the machine the test's own?"),
    C("quality_reasons", "json", "", "why, a sentence each, worst first"),
    C("peak_rss_bytes", "integer", "bytes", "most memory that the process had"),
    C("weights_bytes", "integer", "bytes", "llama.cpp's buffers of weights"),
    C("cache_bytes", "integer", "bytes", "llama.cpp's buffers of keys and values"),
    C("compute_bytes", "integer", "bytes", "llama.cpp's buffers to compute in"),
    C("buffers", "json", "bytes", "the three by the kind of buffer, which says where it lies"),
)

LIMITS: Columns = (
    C("bytes_per_token", "real", "bytes", "read to decode one token, in the mean over the test"),
    C("kv_bytes_per_token", "real", "bytes", "of these, keys and values"),
    C("read_bytes_per_s", "real", "bytes/s", "what a probe read with as many threads"),
    C("ceiling_ts", "real", "tokens/s", "decode rate that this bandwidth allows"),
    C("mbu", "real", "share", "decode rate ÷ `ceiling_ts`"),
    C("flop_per_s", "real", "FLOP/s", "what as many threads did in a product of f32 matrices"),
    C("mfu", "real", "share", "prefill's arithmetic ÷ `flop_per_s`; a proxy, and may pass 1"),
    C("bound", "text", "", "what set the pace: `memory`, `cores`, `cache`; NULL where it cannot be told"),
    C("probe_uid", "text", "", "the probe that these figures rest on: see `probes`"),
    C("weight_bytes_per_token", "integer", "bytes", "weights that decoding one token reads, from the model's header"),
    C("kv_bytes_per_context_token", "integer", "bytes", "keys and values of one token of context in an f16 cache"),
    C("active_params", "integer", "", "parameters less those of experts not used"),
    C("prompt_params", "integer", "", "active ones that every token of a prompt is multiplied with"),
    C("cpu_cache_bytes", "integer", "bytes", "the processors' last-level caches together"),
)

SERIES: Columns = (
    C("series_uid", "text", "", "the measuring process: attempts with the same one followed each other in it"),
    C("interleaved", "boolean", "", "whether its repetitions took turns with those of other jobs"),
    C("across", "text", "", "what alternated in blocks: `builds`, `models`, or both"),
)

ENERGY: Columns = (
    C("joules_total", "real", "J", "taken by what `energy_method` counts while the repetitions ran"),
    C("joules_idle", "real", "J", "of these, what the machine takes when left alone"),
    C("joules_per_prefill_token", "real", "J/token", "of a prompt"),
    C("joules_per_decoded_token", "real", "J/token", "of a decode"),
    C("energy_seconds", "real", "s", "that the counters covered"),
    C("energy_method", "text", "", "which counters"),
    C("energy_valid", "boolean", "", "whether the figures may stand for the test"),
    C("energy_reason", "text", "", "why not"),
    C("energy_parts", "json", "J", "each counter by its name"),
)

CONDITIONS: Columns = (
    C("cpu_share", "real", "share", "of their time that the measuring threads were on a CPU"),
    C("run_delay_share", "real", "share", "of their time that they were ready and had none"),
    C("others_busy_cores", "real", "CPUs", "that everything else kept busy"),
    C("steal_share", "real", "share", "of the virtual machine's CPUs that others got"),
    C("gpu_conditions", "json", "", "clocks, power, heat and other processes of each GPU"),
    C("major_faults", "integer", "", "pages that had to come from a disk"),
    C("load1_before", "real", "", "load average of one minute, before"),
    C("available_bytes_before", "integer", "bytes", "memory that was free, before"),
    C("watched_seconds", "real", "s", "that the counters covered"),
    C("looks", "integer", "", "how often clocks and temperatures were read"),
    C("blocked_share", "real", "share", "of its time that the main thread neither ran nor waited for a CPU"),
    C("times_stopped", "integer", "", "how often the process was stopped"),
    C("suspended_seconds", "real", "s", "that the machine slept"),
    C("cpu_pressure_share", "real", "share", "of the time that some task waited for a CPU"),
    C("memory_pressure_share", "real", "share", "of the time that all tasks waited for memory"),
    C("io_pressure_share", "real", "share", "of the time that all tasks waited for a disk"),
    C("swapped_in_pages", "integer", "pages", "read back from swap, by the whole machine"),
    C("swapped_out_bytes", "integer", "bytes", "of the process that were in swap at the end"),
    C("quota_throttles", "integer", "", "how often a control group's CPU quota was used up"),
    C("quota_throttled_seconds", "real", "s", "lost to that, summed over CPUs"),
    C("clock_start_hz", "real", "Hz", "clock of the process's CPUs at the first look"),
    C("clock_mean_hz", "real", "Hz", "the same in the mean"),
    C("clock_min_hz", "real", "Hz", "the same at its lowest"),
    C("temperature_before_c", "real", "°C", "hottest sensor, before"),
    C("temperature_max_c", "real", "°C", "hottest sensor at its hottest"),
    C("thermal_throttles", "integer", "", "how often heat held a core or package down"),
    C("thermal_throttled_seconds", "real", "s", "that it did"),
    C("power_limit_throttles", "integer", "", "how often a power limit did"),
    C("cooling_share", "real", "share", "of its full strength at which the kernel held computing back"),
    C("firmware_flags", "integer", "", "Raspberry Pi's bits: 1 under-voltage, 2 clock capped, 4 throttled, 8 warm"),
    C("on_battery", "boolean", "", "whether the machine ran on a battery"),
)

WHEN: Columns = (
    C("test_epoch", "integer", "s", "`test_time` as seconds from 1970, whole: to plot and to reckon with"),
    C("ended_epoch", "integer", "s", "`ended_at` as seconds from 1970, whole"),
)

ENVIRONMENT: Columns = (
    C("os", "text", "", "operating system, when it was measured"),
    C("kernel", "text", "", "its kernel"),
    C("governor", "text", "", "the CPUs' governor of clocks"),
    C("gpu_driver", "text", "", "version of the GPUs' driver"),
)

FAILURE: Columns = (
    C("final", "boolean", "", "whether this is how the job ended: not one that was cut and is still to be done"),
    C("superseded", "boolean", "", "whether a later attempt took its place"),
    C("stage", "text", "", "where it failed: `start`, `model`, `load`, `context`, …, `interrupted`, `host lost`"),
    C(
        "failure_kind",
        "text",
        "",
        "`error`, `oom` (out of memory), `timeout`, `abort`, `signal`, `exit`, `interrupted`, …",
    ),
    C("message", "text", "", "why, in words"),
    C("signal", "text", "", "the signal that ended the process"),
    C("exit_code", "integer", "", "the process's exit status"),
    C("n_samples", "integer", "", "repetitions that were measured before"),
    C("log_tail", "json", "", "the log's last lines"),
)


def picked(columns: Columns, *names: str) -> Columns:
    """Return those of `columns` that have these names."""
    return tuple(column for column in columns if column.name in names)


SAMPLE: Columns = (
    *picked(IDENTITY, "run_uid", "job_uid", "attempt_uid", "host", "model", "kind", "test"),
    C("status", "text", "", "of the attempt: `measured` or `failed`"),
    C("final", "boolean", "", "whether the attempt is how the job ended"),
    C("repetition", "integer", "", "which one, from 0"),
    C("n_tokens", "integer", "tokens", "in the timed window, over all sequences"),
    C("elapsed_ns", "integer", "ns", "of the timed window"),
    C("prompt_ns", "integer", "ns", "of these, until the prompt was computed, of `pg` tests"),
    C("gen_ns", "integer", "ns", "of these, the rest"),
    C("ts", "real", "tokens/s", "rate of the repetition"),
    C("cpu_share", "real", "share", "of their time that the measuring threads were on a CPU"),
    *picked(IDENTITY, "host_uid", "config_key", "test_time"),
    *picked(WHEN, "test_epoch"),
    *picked(MEASURED, "quality"),
)
