#include "src/prepare/repeated_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "src/comm/host_collectives.hpp"

namespace trireme::prepare {
namespace {

/// Lists of records in one file on the disk, which vanishes with the process. Each has a buffer of 64 KiB.
template <class Record>
class SpilledLists {
 public:
  SpilledLists(const Files& files, const std::string& path, std::size_t lists)
      : file_(files.work->open(path, Access::create_unnamed)), buffers_(lists), blocks_(lists) {}

  void append(std::size_t list, const Record& record) {
    std::vector<Record>& buffer = buffers_[list];
    buffer.push_back(record);
    if (buffer.size() < block_records) return;
    file_->write(written_bytes_, {reinterpret_cast<const char*>(buffer.data()), block_bytes});
    blocks_[list].push_back(std::exchange(written_bytes_, written_bytes_ + std::int64_t{block_bytes}));
    buffer.clear();
  }

  /// Calls `take(record)` for the records of a list in their order.
  template <class Take>
  void for_each(std::size_t list, const Take& take) const {
    std::vector<Record> block(block_records);
    for (const std::int64_t offset : blocks_[list]) {
      file_->read(offset, {reinterpret_cast<char*>(block.data()), block_bytes});
      for (const Record& record : block) take(record);
    }
    for (const Record& record : buffers_[list]) take(record);
  }

 private:
  static constexpr std::size_t block_records = (std::size_t{1} << 16) / sizeof(Record);
  static constexpr std::size_t block_bytes = block_records * sizeof(Record);
  std::unique_ptr<RandomAccessFile> file_;
  std::vector<std::vector<Record>> buffers_;
  std::vector<std::vector<std::int64_t>> blocks_;  // offsets of the written blocks of each list
  std::int64_t written_bytes_ = 0;
};

struct Span {
  Hash128 hash;
  std::int64_t document, first_part;
};

/// First occurrence of a span on a rank.
struct Occurrence {
  Hash128 hash;
  std::int64_t document, rank;
};

/// First occurrence of a span on all ranks, for another rank that has it, too.
struct Answer {
  Hash128 hash;
  std::int64_t document;
};

struct FirstPlace {
  std::int64_t document, first_part;  // on this rank
  std::int64_t kept;                  // document on all ranks
};

struct HashOfHash {
  std::size_t operator()(const Hash128& hash) const { return hash.low; }
};

}  // namespace

/// Spans by their hashes, and repeated spans by their documents.
struct RepeatedText::Lists {
  Lists(const Files& files, const std::string& folder, int rank, std::size_t lists)
      : count(lists),
        spans(files, fmt::format("{}/spans-{}", folder, rank), lists),
        found(files, fmt::format("{}/repeated-{}", folder, rank), lists) {}

  std::size_t count;
  SpilledLists<Span> spans;
  SpilledLists<RepeatedSpan> found;
  std::size_t next_list = 0;       // list of `found` to read next
  std::vector<RepeatedSpan> read;  // sorted
  std::vector<RepeatedSpan>::iterator next;
};

RepeatedText::RepeatedText(const Files& files, Communicator& comm, std::string folder)
    : files_(files), comm_(comm), folder_(std::move(folder)), hashes_(files, comm, folder_, "hashes") {}

RepeatedText::~RepeatedText() = default;

void RepeatedText::append(const std::vector<Hash128>& spans) {
  hashes_.append({reinterpret_cast<const char*>(spans.data()), spans.size() * sizeof(Hash128)});
}

void RepeatedText::find(const std::function<bool(std::int64_t)>& is_kept, std::int64_t at_once) {
  hashes_.finish();
  const std::int64_t spans =
      std::ranges::max(all_gather_number(comm_, hashes_.size_bytes())) / std::int64_t{sizeof(Hash128)};
  collectively(comm_, [&] {
    lists_ = std::make_unique<Lists>(files_, folder_, comm_.rank(), static_cast<std::size_t>(spans / at_once + 1));
    std::vector<Hash128> hashes;
    for (std::int64_t document = hashes_.begin(); document < hashes_.end(); ++document) {
      if (!is_kept(document)) continue;
      const std::string record = hashes_.read(document);
      if (record.empty()) continue;
      hashes.resize(record.size() / sizeof(Hash128));
      std::memcpy(hashes.data(), record.data(), record.size());
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        if (hashes[i] == Hash128{}) continue;
        lists_->spans.append(hashes[i].high % lists_->count, {hashes[i], document, static_cast<std::int64_t>(i)});
      }
    }
  });
  for (std::size_t list = 0; list < lists_->count; ++list) find_in(list);
  lists_->next = lists_->read.begin();
}

void RepeatedText::find_in(std::size_t list) {
  std::unordered_map<Hash128, FirstPlace, HashOfHash> firsts;
  const auto ranks = static_cast<std::uint64_t>(comm_.size());
  std::vector<std::vector<Occurrence>> questions(ranks);
  collectively(comm_, [&] {
    lists_->spans.for_each(list, [&](const Span& span) {
      const bool is_new = firsts.try_emplace(span.hash, span.document, span.first_part, span.document).second;
      if (is_new) questions[span.hash.low % ranks].push_back({span.hash, span.document, comm_.rank()});
    });
  });
  std::vector<Occurrence> occurrences = all_to_all(comm_, std::exchange(questions, {}));
  std::ranges::sort(occurrences, {}, [](const Occurrence& o) { return std::tuple(o.hash, o.document); });
  std::vector<std::vector<Answer>> answers(ranks);
  for (std::size_t i = 1, first = 0; i < occurrences.size(); ++i) {
    if (occurrences[i].hash != occurrences[first].hash) first = i;
    if (i != first)
      answers[static_cast<std::size_t>(occurrences[i].rank)].push_back(
          {occurrences[i].hash, occurrences[first].document});
  }
  for (const Answer& answer : all_to_all(comm_, answers)) firsts.at(answer.hash).kept = answer.document;
  collectively(comm_, [&] {
    lists_->spans.for_each(list, [&](const Span& span) {
      const FirstPlace& first = firsts.at(span.hash);
      const bool is_first = first.kept == span.document && first.first_part == span.first_part;
      if (is_first) return;
      lists_->found.append(list_of(span.document), {span.document, span.first_part, first.kept});
    });
  });
}

/// Returns the list of `found` with the spans of a document of this rank: that of its neighbours, too.
std::size_t RepeatedText::list_of(std::int64_t document) const {
  return static_cast<std::size_t>(document - hashes_.begin()) * lists_->count /
         static_cast<std::size_t>(hashes_.end() - hashes_.begin());
}

std::vector<RepeatedSpan> RepeatedText::of(std::int64_t document) {
  Lists& lists = *lists_;
  const std::size_t place = list_of(document);
  for (; lists.next_list <= place; ++lists.next_list) {
    lists.read.clear();
    if (lists.next_list < place) continue;
    lists.found.for_each(place, [&](const RepeatedSpan& span) { lists.read.push_back(span); });
    std::ranges::sort(lists.read, {},
                      [](const RepeatedSpan& span) { return std::tuple(span.document, span.first_part); });
    lists.next = lists.read.begin();
  }
  std::vector<RepeatedSpan> result;
  while (lists.next != lists.read.end() && lists.next->document < document) ++lists.next;
  for (; lists.next != lists.read.end() && lists.next->document == document; ++lists.next)
    result.push_back(*lists.next);
  return result;
}

}  // namespace trireme::prepare
