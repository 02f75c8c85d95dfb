#include "src/plan/cases/published_run.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/plan/cases/csv.hpp"

namespace trireme::plan {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool has(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

/// A fault of one field, caught when reading the row.
struct FieldError {
  std::string column;
  std::string reason;
};

template <class... Values>
void require(bool holds, const std::string& column, fmt::format_string<Values...> reason, Values&&... values) {
  if (!holds) throw FieldError{column, fmt::format(reason, std::forward<Values>(values)...)};
}

/// Fields of one row, read as values.
class Row {
 public:
  explicit Row(const std::map<std::string, std::string>& fields) : fields_(fields) {}

  std::string text(const std::string& column) const {
    const auto found = fields_.find(column);
    return found == fields_.end() ? "" : found->second;
  }
  std::string lower_text(const std::string& column) const { return lower(text(column)); }

  /// A number: "51200", "51,200", "~50k (not stated)", "0.557 s". Empty if the field has none.
  std::optional<double> number(const std::string& column) const {
    std::string digits;
    for (const char c : lower_text(column)) {
      if (c == '~' || c == ',' || c == '_' || (c == ' ' && digits.empty())) continue;
      digits += c;
    }
    const bool has_digit = !digits.empty() && std::isdigit(static_cast<unsigned char>(digits.front())) != 0;
    if (digits.empty() || digits == "-" || (!has_digit && has(digits, {"none", "n/a", "not stated", "unknown"}))) {
      return std::nullopt;
    }
    std::string_view rest = digits;
    const auto number = take_number<double>(rest);
    require(number.has_value(), column, "'{}' is not a number", text(column));
    const double value = *number * (rest.starts_with('k') ? 1000 : 1);
    if (rest.starts_with('k')) rest.remove_prefix(1);
    require(rest.empty() || std::string_view(" (s%").find(rest.front()) != std::string_view::npos, column,
            "'{}' is not a number", text(column));
    require(std::isfinite(value) && value > 0, column, "'{}' is not above 0", text(column));
    return value;
  }

  std::optional<std::int64_t> count(const std::string& column) const {
    const std::optional<double> value = number(column);
    if (!value) return std::nullopt;
    require(*value == std::floor(*value) && *value <= 1e9, column, "'{}' is not a whole number up to 1e9",
            text(column));
    return static_cast<std::int64_t>(*value);
  }
  std::int64_t needed(const std::string& column) const {
    const std::optional<std::int64_t> value = count(column);
    require(value.has_value(), column, "is empty; a whole number is needed");
    return *value;
  }
  int rank_count(const std::string& column, int missing) const {
    return static_cast<int>(count(column).value_or(missing));
  }

 private:
  const std::map<std::string, std::string>& fields_;
};

[[noreturn]] void refuse(const Row& row, const std::string& column, std::string_view reason) {
  throw FieldError{column, fmt::format("'{}' {}", row.text(column), reason)};
}

std::string cluster_of(const Row& row) {
  const std::string text = row.lower_text("hardware");
  if (has(text, {"v100"})) return has(text, {"2h"}) ? "dgx-2h" : "dgx-2";
  if (has(text, {"a100"})) return has(text, {"40g", "40 g", "40-g", "40_g"}) ? "dgx-a100-40gb" : "dgx-a100";
  if (has(text, {"h200"})) return "dgx-h200";
  if (has(text, {"h100"})) return "dgx-h100";
  refuse(row, "hardware", "does not name one of V100, A100, H100, H200");
}

Sharding sharding_of(const std::string& schedule) {
  if (has(schedule, {"shard_grad_op", "zero-2", "zero2", "zero 2"})) return Sharding::gradients;
  if (has(schedule, {"fsdp", "full_shard", "zero-3", "zero3", "zero 3", "deepspeed"})) return Sharding::full;
  if (has(schedule, {"zero-1", "zero1", "zero 1", "distributed opt", "dist-opt"})) return Sharding::optimizer;
  return Sharding::none;
}

PublishedSchedule schedule_of(const Row& row) {
  const std::string text = row.lower_text("schedule");
  if (has(text, {"zb-2p", "zb2p", "zb 2p", "zb-h2", "zbh2"})) return PublishedSchedule::zero_bubble_2p;
  if (has(text, {"zb-1p", "zb1p", "zb 1p", "zb-h1", "zbh1", "zero-bubble", "zero bubble"})) {
    return PublishedSchedule::zero_bubble_1p;
  }
  const bool plain =
      has(text, {"non-interleave", "noninterleave", "non interleave", "not interleave", "without interleav"});
  if (!plain && has(text, {"interleave", "1f1b-i", "1f1b_i", "1f1b i", "1f1bi", "vpp", "virtual"}))
    return PublishedSchedule::interleaved;
  if (has(text, {"gpipe", "all forward"})) return PublishedSchedule::gpipe;
  if (text.empty() ||
      has(text, {"1f1b", "none", "flush", "ptd", "pipedream", "ddp", "data", "tensor", "sequence", "n/a"}) ||
      text == "-" || sharding_of(text) != Sharding::none) {
    return PublishedSchedule::one_forward_one_backward;
  }
  refuse(row, "schedule", "is not one of 1F1B, interleaved, GPipe, ZB-1p, ZB-2p, FSDP");
}

Recomputation recomputation_of(const Row& row) {
  const std::string text = row.lower_text("recompute");
  if (has(text, {"selective", "core att"})) return Recomputation::selective;
  if (has(text, {"full", "true", "yes", "uniform", "block", "all layers", "every layer"})) return Recomputation::full;
  if (text.empty() || text == "-" || has(text, {"no", "false", "off", "n/a"})) return Recomputation::none;
  refuse(row, "recompute", "is not one of none, selective, full");
}

bool uses_fp8(const Row& row, const std::string& cluster) {
  const std::string text = row.lower_text("precision");
  if (has(text, {"fp8"})) {
    require(has(cluster, {"h100", "h200"}), "precision", "fp8 needs an H100 or H200");
    return true;
  }
  if (text.empty() || has(text, {"fp16", "bf16", "half", "bfloat", "float16", "mixed", "not stated"})) return false;
  refuse(row, "precision", "is not one of fp16, bf16, fp8");
}

FlopConvention convention_of(const Row& row) {
  const std::string text = row.lower_text("tflops_def");
  if (has(text, {"6n"})) return has(text, {"att"}) ? FlopConvention::six_n_attention : FlopConvention::six_n;
  if (has(text, {"hardware", "hfu"})) return FlopConvention::hardware;
  if (has(text, {"excl", "without recomp", "no recomp", "72b"})) return FlopConvention::model;
  if (has(text, {"eq3", "eq. 3", "eq 3", "eq.3", "eq(3)", "equation 3", "96b", "incl recomp", "incl. recomp",
                 "including recomp", "with recomp", "w/ recomp", "paper"})) {
    return FlopConvention::with_recompute;
  }
  if (text.empty() || text == "-" || has(text, {"model", "mfu", "none", "n/a", "palm"})) return FlopConvention::model;
  refuse(row, "tflops_def", "is not a known convention: eq3, hardware FLOPs, model FLOPs, 6N + attention");
}

bool is_sequence_parallel(const Row& row, const PublishedRun& run) {
  for (const char* column : {"schedule", "recompute", "model", "note", "hardware"}) {
    const std::string text = fmt::format(" {} ", row.lower_text(column));
    if (has(text, {"no sequence par", "without sequence par", "no sp"})) return false;
    if (has(text, {"sequence par", "sequence-par", "seq par", "seq-par", "+sp", "+ sp", " sp ", "sp+"})) return true;
  }
  return run.framework.selective_is_sequence_parallel && run.recomputation == Recomputation::selective;
}

/// Returns the program of the column `program`, or of the schedule if it is empty.
const Framework& framework_of(const Row& row) {
  const std::string name = row.lower_text("program");
  if (name.empty()) return framework_of_schedule(row.lower_text("schedule"));
  try {
    return find_framework(name);
  } catch (const ConfigError& error) {
    throw FieldError{"program", error.what()};
  }
}

void read_grid(const Row& row, PublishedRun& run) {
  run.gpus = static_cast<int>(row.needed("gpus"));
  run.tp = row.rank_count("tp", 1);
  run.pp = row.rank_count("pp", 1);
  const std::int64_t model_ranks = static_cast<std::int64_t>(run.tp) * run.pp;
  require(run.gpus % model_ranks == 0, "gpus", "{} are not a multiple of tp {} x pp {}", run.gpus, run.tp, run.pp);
  run.dp = row.rank_count("dp", static_cast<int>(run.gpus / model_ranks));
  require(run.gpus == model_ranks * run.dp, "dp", "tp {} x pp {} x dp {} are {} GPUs, not {}", run.tp, run.pp, run.dp,
          model_ranks * run.dp, run.gpus);
  run.global_batch = row.needed("gbs");
  run.micro_batch = row.needed("mbs");
  require(run.global_batch >= run.dp * run.micro_batch, "gbs", "{} are less than dp {} x mbs {}", run.global_batch,
          run.dp, run.micro_batch);
}

void read_model(const Row& row, PublishedRun& run) {
  run.layers = static_cast<int>(row.needed("layers"));
  run.hidden = row.needed("hidden");
  run.sequence = row.needed("seq");
  run.heads = row.count("heads").value_or(std::max<std::int64_t>(1, run.hidden / 128));
  run.vocabulary = row.count("vocab").value_or(51200);
  require(run.layers <= 2000, "layers", "{} are more than 2000", run.layers);
  require(run.layers >= run.pp, "pp", "{} stages for {} layers", run.pp, run.layers);
  require(run.hidden % run.heads == 0, "heads", "{} do not divide hidden {}", run.heads, run.hidden);
  require(run.heads % run.tp == 0, "tp", "{} ranks do not divide {} heads", run.tp, run.heads);
}

/// Widths of the layers' blocks, and experts.
void read_blocks(const Row& row, PublishedRun& run) {
  const std::string style = row.lower_text("style");
  if (!style.empty() && style != "gpt" && style != "llama") refuse(row, "style", "is not one of gpt, llama");
  run.llama = style == "llama";
  run.kv_heads = row.count("kv_heads").value_or(run.heads);
  require(run.heads % run.kv_heads == 0, "kv_heads", "{} do not divide {} heads", run.kv_heads, run.heads);
  run.ffn_hidden = row.count("ffn").value_or(4 * run.hidden);
  PublishedExperts& experts = run.experts;
  experts.count = row.count("experts").value_or(0);
  experts.etp = run.tp;
  if (!experts.any()) return;
  experts.per_token = row.count("topk").value_or(2);
  experts.hidden = row.count("moe_ffn").value_or(run.ffn_hidden);
  experts.shared_hidden = row.count("shared_ffn").value_or(0);
  experts.ep = row.rank_count("ep", 1);
  experts.etp = row.rank_count("etp", run.tp);
  require(experts.per_token <= experts.count, "topk", "{} are more than {} experts", experts.per_token, experts.count);
  require(experts.count % experts.ep == 0, "ep", "{} ranks do not divide {} experts", experts.ep, experts.count);
  require(run.tp % experts.etp == 0, "etp", "{} do not divide tp {}", experts.etp, run.tp);
  require(run.gpus / run.pp % (experts.ep * experts.etp) == 0, "ep",
          "ep {} x etp {} do not divide the {} GPUs of a stage", experts.ep, experts.etp, run.gpus / run.pp);
}

void read_schedule(const Row& row, PublishedRun& run) {
  run.sharding = sharding_of(row.lower_text("schedule"));
  run.schedule = schedule_of(row);
  require(!run.is_fsdp() || !run.experts.any(), "schedule", "'{}' is not predicted together with experts",
          row.text("schedule"));
  require(!run.is_fsdp() || run.tp * run.pp == 1, "schedule", "'{}' is not predicted together with tp {} or pp {}",
          row.text("schedule"), run.tp, run.pp);
  if (run.schedule == PublishedSchedule::interleaved && run.pp > 1) {
    constexpr const char* column = "layers_per_virtual_stage";
    const std::optional<std::int64_t> layers = row.count(column);
    require(layers.has_value(), column, "is empty; an interleaved schedule needs it");
    // Rounded up: the first or last chunk may have fewer layers, next to the embedding and the output head.
    const std::int64_t chunk_layers = run.pp * *layers;
    run.chunks = static_cast<int>((run.layers + chunk_layers - 1) / chunk_layers);
  }
  constexpr std::int64_t max_steps = 2'000'000, max_scheduled = 100'000'000;
  const std::int64_t steps = static_cast<std::int64_t>(run.micro_batches()) * run.pp * run.chunks;
  const bool automatic = run.schedule == PublishedSchedule::zero_bubble_2p;
  require(run.pp == 1 || (steps <= max_steps && (!automatic || steps * run.pp <= max_scheduled)), "gbs",
          "{} micro-batches on {} stages are too many to simulate", run.micro_batches(), run.pp);
}

PublishedRun run_of(const CsvRecord& record, const std::vector<std::string>& columns) {
  PublishedRun run;
  run.line = record.line;
  for (std::size_t c = 0; c < columns.size(); ++c) run.text[columns[c]] = record.fields[c];
  const Row row(run.text);
  run.cluster = cluster_of(row);
  read_grid(row, run);
  read_model(row, run);
  read_blocks(row, run);
  run.fp8 = uses_fp8(row, run.cluster);
  run.recomputation = recomputation_of(row);
  read_schedule(row, run);
  run.framework = framework_of(row);
  run.bf16 = has(row.lower_text("precision"), {"bf16"}) && !has(row.lower_text("precision"), {"fp16"});
  run.sequence_parallel = run.tp > 1 && is_sequence_parallel(row, run);
  run.convention = convention_of(row);
  run.iter_s = row.number("iter_s");
  run.tflops_gpu = row.number("tflops_gpu");
  return run;
}

std::vector<std::string> header_of(const std::string& name, const CsvRecord& record) {
  std::vector<std::string> columns;
  for (const std::string& field : record.fields) columns.push_back(lower(field));
  std::vector<std::string> missing;
  for (const char* needed : {"hidden", "layers", "seq", "hardware", "gpus", "mbs", "gbs"}) {
    if (std::ranges::find(columns, needed) == columns.end()) missing.emplace_back(needed);
  }
  TRIREME_CHECK(missing.empty(), DataError, "{}, line {}: the header lacks the columns {}", name, record.line,
                fmt::join(missing, ", "));
  return columns;
}

}  // namespace

const char* name_of(FlopConvention convention) {
  constexpr const char* names[] = {"72 B s l h^2 (1 + s / 6h + V / 12lh)", "96 B s l h^2 (1 + s / 6h + V / 16lh)",
                                   "72 B s l h^2 (1 + s / 6h + V / 12lh) and recomputation", "6 B s N",
                                   "B s (6 N + 12 l h s)"};
  return names[static_cast<int>(convention)];
}

int PublishedRun::micro_batches() const {
  const std::int64_t samples = dp * micro_batch;
  return static_cast<int>((global_batch + samples - 1) / samples);
}

double PublishedRun::dense_parameters() const {
  const auto h = static_cast<double>(hidden);
  const double attention = h * (2 * h + 2 * kv_width());
  if (!experts.any()) return attention + h * block_matrices(ffn_hidden);
  return attention + h * (static_cast<double>(experts.count) + block_matrices(experts.shared_hidden));
}

double PublishedRun::embedding_parameters() const {
  const auto h = static_cast<double>(hidden), v = static_cast<double>(vocabulary), s = static_cast<double>(sequence);
  return llama ? 2 * v * h : v * h + s * h;
}

double PublishedRun::flops() const {
  const auto b = static_cast<double>(global_batch), s = static_cast<double>(sequence), l = static_cast<double>(layers),
             h = static_cast<double>(hidden), v = static_cast<double>(vocabulary);
  const double tokens = b * s;
  const double attention = 12 * tokens * l * h * s;  // scores and weighted sums, all pairs
  const double chosen = experts.any() ? static_cast<double>(experts.per_token) * expert_parameters() : 0;
  const double matrices = l * (dense_parameters() + chosen);
  if (convention == FlopConvention::six_n || convention == FlopConvention::six_n_attention) {
    return 6 * tokens * (matrices + embedding_parameters()) + (convention == FlopConvention::six_n ? 0 : attention);
  }
  const double layer_flops = 6 * tokens * matrices + attention;
  const double logits = 6 * tokens * v * h;
  if (convention == FlopConvention::with_recompute) return layer_flops * 4 / 3 + logits;
  double again = 0;
  if (convention == FlopConvention::hardware) {
    if (recomputation == Recomputation::full) again = layer_flops / 3;
    if (recomputation == Recomputation::selective) again = attention / 3;
  }
  return layer_flops + logits + again;
}

std::optional<double> PublishedRun::published_seconds() const {
  if (iter_s) return iter_s;
  if (tflops_gpu) return flops() / gpus / (*tflops_gpu * 1e12);
  return std::nullopt;
}

std::vector<PublishedRow> parse_published_runs(const std::string& name, const std::string& text) {
  const std::vector<CsvRecord> records = parse_csv(name, text);
  TRIREME_CHECK(!records.empty(), DataError, "{}: the file is empty; its first line names the columns", name);
  const std::vector<std::string> columns = header_of(name, records.front());
  std::vector<PublishedRow> rows;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const CsvRecord& record = records[i];
    PublishedRow row{record.line, {}, {}};
    if (record.fields.size() != columns.size()) {
      row.error = fmt::format("{}, line {}: {} fields, the header has {} columns", name, record.line,
                              record.fields.size(), columns.size());
    } else {
      try {
        row.run = run_of(record, columns);
      } catch (const FieldError& error) {
        row.error = fmt::format("{}, line {}, column {}: {}", name, record.line, error.column, error.reason);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace trireme::plan
