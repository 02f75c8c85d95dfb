#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace trireme::data {

/// Optional fields of a sample. Tokens and labels are always present.
struct SampleFields {
  bool token_types = false;
  bool positions = false;
  bool first_visible = false;
  bool length = false;
  bool is_random = false;
  bool span_end = false;
  bool last_token = false;
  std::int64_t samples_per_label = 1;  ///< consecutive samples whose common label is on the first
  std::int64_t predictions = 0;        ///< labels of a sample at most; 0: one at each position
  std::int64_t ahead = 0;              ///< further tokens to predict at each position, which every source supplies
  bool operator==(const SampleFields&) const = default;

  /// Labels at most of `rows` positions of a sample.
  std::int64_t predictions_of(std::int64_t rows) const { return predictions > 0 ? std::min(predictions, rows) : rows; }
};

/// One sample of s positions, filled by its source. Optional fields not requested are empty.
struct SampleView {
  std::span<std::int32_t> tokens;       ///< [s]
  std::span<std::int32_t> labels;       ///< [s] token to predict at each position; negative: none, its loss weight is 0
  std::span<std::int32_t> token_types;  ///< [s] segment of each token
  std::span<std::int32_t> positions;    ///< [s] position of each token: its row in a table, its angle of rotation
  /// [s] first position that each one attends to: at most itself, and never less than that of the one before.
  std::span<std::int32_t> first_visible;
  std::span<std::int32_t> length;  ///< [1] positions before the padding
  /// [1] label of the sample; negative: none. Of BERT's pretraining, 1 if the second segment does not follow the
  /// first; of a task, the class, the right choice, or the answer's first position.
  std::span<std::int32_t> is_random;
  std::span<std::int32_t> span_end;    ///< [1] the answer's last position
  std::span<std::int32_t> last_token;  ///< [1] position of the last token before the padding
};

/// Memory of one sample.
class SampleBuffer {
 public:
  SampleBuffer(std::int64_t sequence_length, const SampleFields& fields) {
    const auto s = static_cast<std::size_t>(sequence_length);
    memory_.resize(5 * s + 4);
    std::span<std::int32_t> rest = memory_;
    const auto take = [&](bool wanted, std::size_t count) {
      const std::span<std::int32_t> taken = rest.first(wanted ? count : 0);
      rest = rest.subspan(taken.size());
      return taken;
    };
    view_ = {take(true, s),
             take(true, s),
             take(fields.token_types, s),
             take(fields.positions, s),
             take(fields.first_visible, s),
             take(fields.length, 1),
             take(fields.is_random, 1),
             take(fields.span_end, 1),
             take(fields.last_token, 1)};
  }
  SampleBuffer& operator=(SampleBuffer&&) = delete;
  const SampleView& view() const { return view_; }

 private:
  std::vector<std::int32_t> memory_;
  SampleView view_;
};

/// Orders of epochs' samples, made when they are first read; the latest two are kept. Thread-safe.
template <class Number>
class EpochOrders {
 public:
  using Order = std::shared_ptr<const std::vector<Number>>;
  /// Returns the order of an epoch, which `make()` returns.
  template <class Make>
  Order at(std::int64_t epoch, const Make& make) {
    const std::scoped_lock lock(mutex_);
    Order& order = orders_[epoch];
    if (!order) order = std::make_shared<const std::vector<Number>>(make());
    const Order found = order;
    // A batch may begin in one epoch and end in the next.
    if (orders_.size() > 2) orders_.erase(epoch == orders_.begin()->first ? std::prev(orders_.end()) : orders_.begin());
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, Order> orders_;
};

/// Training samples by number, independent of the underlying corpora, splits and blends.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t sequence_length() const = 0;
  /// Positions of sample `index` before its padding, if known without reading it; else all.
  virtual std::int64_t length(std::int64_t /*index*/) const { return sequence_length(); }
  /// Optional fields that `read` can fill.
  virtual SampleFields fields() const { return {}; }
  /// Writes sample `index`, 0 <= index < size(), to the fields of `sample` that are not empty. Thread-safe.
  virtual void read(std::int64_t index, const SampleView& sample) const = 0;
  /// Throws DataError if the samples' files have changed since they were opened: samples read since may be wrong.
  virtual void check_unchanged() const {}
};

}  // namespace trireme::data
