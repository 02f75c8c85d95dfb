#include "src/prepare/word_counting.hpp"

#include <algorithm>

#include "src/data/tokenizer/bpe_trainer.hpp"

namespace trireme::prepare {
namespace {

// Bytes after which the counts of all threads are merged, for any number of threads.
constexpr std::int64_t batch_bytes = std::int64_t{32} << 20;

std::int64_t size_of(const std::vector<data::WordCounts>& partitions) {
  std::int64_t size = 0;
  for (const auto& partition : partitions) size += static_cast<std::int64_t>(partition.size());
  return size;
}

}  // namespace

CountedWords count_words(const Files& files, WordCountingOptions options, ThreadPool& pool,
                         const ByteProgress& progress) {
  const data::SplitWords splits(options.splits);
  options.reader.can_cut = [&](std::string_view text, std::size_t at) { return splits.can_cut(text, at); };
  TextReader reader(files, options.inputs, options.reader);
  const auto threads = static_cast<std::size_t>(pool.threads());
  std::vector<data::WordCounts> local(threads);       // counts of each thread
  std::vector<data::WordCounts> partitions(threads);  // counts of all, by the words' hashes
  std::vector<std::int64_t> local_bytes(threads);
  CountedWords result;
  for (;;) {
    std::vector<TextPiece> batch = read_batch(reader, batch_bytes);
    if (batch.empty()) break;
    pool.parallel_for(pool.threads(), [&](std::int64_t thread) {
      const auto t = static_cast<std::size_t>(thread);
      local[t].clear();
      for (std::size_t i = t; i < batch.size(); i += threads) {
        const std::string text = text_of(files, batch[i], options.reader);
        local_bytes[t] += std::ssize(text);
        local[t].add_text(text, splits);
      }
    });
    pool.parallel_for(pool.threads(), [&](std::int64_t partition) {
      const auto p = static_cast<std::size_t>(partition);
      for (const auto& counts : local) partitions[p].add(counts, p, threads);
    });
    if (size_of(partitions) > options.max_words) {
      for (std::int64_t count = 1; size_of(partitions) > options.max_words / 2; ++count) {
        for (auto& partition : partitions) result.forgotten += partition.forget(count);
      }
    }
    progress(reader.bytes_read(), reader.total_bytes());
  }
  for (auto& partition : partitions) {
    auto words = partition.sorted();
    partition.clear();
    std::ranges::move(words, std::back_inserter(result.words));
  }
  std::ranges::sort(result.words);
  for (const auto& [word, count] : result.words) result.occurrences += count;
  for (const std::int64_t bytes : local_bytes) result.text_bytes += bytes;
  return result;
}

}  // namespace trireme::prepare
