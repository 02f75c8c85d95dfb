#include "io/arrow/tables.hpp"

#ifndef TRIREME_HAS_ARROW

namespace trireme::io {

std::string arrow_version() { return ""; }
const prepare::Container* find_table(const std::string&) { return nullptr; }
std::unique_ptr<prepare::ByteSource> open_table(const prepare::Container&, const prepare::FileRange&,
                                                std::string_view) {
  return nullptr;
}
std::int64_t row_group_begin(const prepare::Container&, const std::string&, std::int64_t at) { return at; }

}  // namespace trireme::io

#else

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/arrow/row_json.hpp"
#include "io/compression/compression.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

using prepare::TableKind;

constexpr std::int64_t max_batch_bytes = std::int64_t{8} << 20;
constexpr std::int64_t max_batch_rows = std::int64_t{1} << 16;
constexpr std::int64_t column_buffer_bytes = std::int64_t{256} << 10;
constexpr std::size_t lines_bytes = std::size_t{1} << 20;  // made at a time

/// Returns the value of a result, or throws its failure.
template <class T>
T value_of(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).ValueUnsafe();
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

/// Calls `read`. Failures, those of the libraries included, become a DataError that begins with `where`.
template <class Read>
auto guarded(const std::string& where, const Read& read) {
  try {
    return read();
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  } catch (const std::exception& error) {
    throw DataError("{}: {}; get the file again, or convert it to JSON lines", where, shortened(error.what()));
  }
}

/// Returns whether `columns` names a column, a member of it, or a column that it is a member of.
bool is_wanted(const std::string& path, std::string_view columns) {
  if (columns == prepare::all_columns) return true;
  const auto begins = [](std::string_view longer, std::string_view shorter) {
    return longer.starts_with(shorter) && (longer.size() == shorter.size() || longer[shorter.size()] == '.');
  };
  return std::ranges::any_of(split(columns, ','),
                             [&](std::string_view key) { return begins(path, key) || begins(key, path); });
}

/// The row groups or record batches of a table.
class Groups {
 public:
  virtual ~Groups() = default;
  virtual int count() const = 0;
  /// Returns the size of a group, in any unit.
  virtual double weight(int group) const = 0;
  /// Opens a group. The one opened before must be closed.
  virtual std::shared_ptr<arrow::RecordBatchReader> open(int group) = 0;
};

class ParquetGroups final : public Groups {
 public:
  ParquetGroups(const std::shared_ptr<arrow::io::RandomAccessFile>& file, std::string_view columns) {
    parquet::ReaderProperties properties;
    properties.enable_buffered_stream();  // page by page, not a column of the row group at once
    properties.set_buffer_size(column_buffer_bytes);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file, properties));
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);
    builder.properties(arrow_properties);
    check(builder.Build(&reader_));
    metadata_ = reader_->parquet_reader()->metadata();
    const parquet::SchemaDescriptor& schema = *metadata_->schema();
    for (int i = 0; i < schema.num_columns(); ++i) {
      if (is_wanted(schema.Column(i)->path()->ToDotString(), columns)) columns_.push_back(i);
    }
  }

  int count() const override { return metadata_->num_row_groups(); }
  double weight(int group) const override { return static_cast<double>(metadata_->RowGroup(group)->total_byte_size()); }
  std::shared_ptr<arrow::RecordBatchReader> open(int group) override {
    const std::int64_t rows = metadata_->RowGroup(group)->num_rows();
    if (columns_.empty()) {
      const auto batch = arrow::RecordBatch::Make(arrow::schema({}), rows, arrow::ArrayVector());
      return value_of(arrow::RecordBatchReader::Make({batch}));
    }
    const double row_bytes = std::max(1.0, weight(group) / static_cast<double>(std::max<std::int64_t>(1, rows)));
    reader_->set_batch_size(
        std::clamp(static_cast<std::int64_t>(max_batch_bytes / row_bytes), std::int64_t{1}, max_batch_rows));
    return value_of(reader_->GetRecordBatchReader({group}, columns_));
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<int> columns_;
};

/// Base of Arrow's own formats. Their buffers are used as they lie in the file, so that offsets are checked first.
class ArrowGroups : public Groups {
 public:
  explicit ArrowGroups(std::string_view columns) : columns_(columns) {}
  double weight(int) const override { return 1; }

 protected:
  arrow::ipc::IpcReadOptions options_for(const arrow::Schema& schema) {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    for (int i = 0; i < schema.num_fields(); ++i) {
      if (is_wanted(schema.field(i)->name(), columns_)) options.included_fields.push_back(i);
    }
    has_columns_ = !options.included_fields.empty();  // without, all columns are read
    return options;
  }
  std::shared_ptr<arrow::RecordBatch> checked(const std::shared_ptr<arrow::RecordBatch>& batch) const {
    if (!batch) return batch;
    check(batch->ValidateFull());
    return has_columns_ ? batch : value_of(batch->SelectColumns({}));
  }

 private:
  std::string columns_;
  bool has_columns_ = false;
};

class ArrowFileGroups final : public ArrowGroups {
 public:
  ArrowFileGroups(const std::shared_ptr<arrow::io::RandomAccessFile>& file, std::string_view columns)
      : ArrowGroups(columns) {
    const auto schema = value_of(arrow::ipc::RecordBatchFileReader::Open(file))->schema();
    reader_ = value_of(arrow::ipc::RecordBatchFileReader::Open(file, options_for(*schema)));
  }
  int count() const override { return reader_->num_record_batches(); }
  std::shared_ptr<arrow::RecordBatchReader> open(int group) override {
    return value_of(arrow::RecordBatchReader::Make({checked(value_of(reader_->ReadRecordBatch(group)))}));
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
};

class ArrowStreamGroups final : public ArrowGroups {
 public:
  ArrowStreamGroups(const std::shared_ptr<arrow::io::RandomAccessFile>& file, std::string_view columns)
      : ArrowGroups(columns) {
    const auto schema = value_of(arrow::ipc::RecordBatchStreamReader::Open(file))->schema();
    check(file->Seek(0));
    reader_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(file, options_for(*schema)));
  }
  int count() const override { return 1; }
  std::shared_ptr<arrow::RecordBatchReader> open(int) override { return std::make_shared<Batches>(*this); }

 private:
  class Batches final : public arrow::RecordBatchReader {
   public:
    explicit Batches(ArrowStreamGroups& groups) : groups_(groups) {}
    std::shared_ptr<arrow::Schema> schema() const override { return groups_.reader_->schema(); }
    arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
      ARROW_RETURN_NOT_OK(groups_.reader_->ReadNext(batch));
      *batch = groups_.checked(*batch);
      return arrow::Status::OK();
    }

   private:
    ArrowStreamGroups& groups_;
  };

  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
};

/// A table, and where its groups begin in the file: the first at 0, and the size of the file behind the last.
struct Table {
  std::unique_ptr<Groups> groups;
  std::vector<std::int64_t> begins;
};

Table open_groups(const prepare::Container& format, const std::string& path, std::string_view columns) {
  return guarded(fmt::format("{} is damaged, though its first bytes are those of {}", path, format.name), [&] {
    const auto file = value_of(arrow::io::ReadableFile::Open(path));
    const std::int64_t size_bytes = value_of(file->GetSize());
    Table table;
    if (format.table == TableKind::parquet) {
      table.groups = std::make_unique<ParquetGroups>(file, columns);
    } else if (format.table == TableKind::arrow_file) {
      table.groups = std::make_unique<ArrowFileGroups>(file, columns);
    } else {
      table.groups = std::make_unique<ArrowStreamGroups>(file, columns);
    }
    const auto weight = [&](int group) { return std::max(1.0, table.groups->weight(group)); };
    double total = 0, before = 0;
    for (int i = 0; i < table.groups->count(); ++i) total += weight(i);
    for (int i = 0; i < table.groups->count(); before += weight(i++)) {
      const auto begin = static_cast<std::int64_t>(static_cast<double>(size_bytes) * (before / total));
      table.begins.push_back(std::min(begin, size_bytes - 1));
    }
    table.begins.push_back(size_bytes);
    return table;
  });
}

class TableRows final : public prepare::ByteSource {
 public:
  TableRows(const prepare::Container& format, const prepare::FileRange& range, std::string_view columns)
      : table_(open_groups(format, range.path, columns)), range_(range) {
    const auto groups = std::span(table_.begins).first(table_.begins.size() - 1);
    next_group_ = static_cast<int>(std::ranges::lower_bound(groups, range.begin) - groups.begin());
    end_group_ = static_cast<int>(std::ranges::lower_bound(groups, range.end) - groups.begin());
  }

  std::size_t read(char* data, std::size_t size_bytes) override {
    std::size_t got = 0;
    while (got < size_bytes && (used_ < lines_.size() || make_lines())) {
      const std::size_t count = std::min(size_bytes - got, lines_.size() - used_);
      std::memcpy(data + got, lines_.data() + used_, count);
      got += count;
      used_ += count;
    }
    return got;
  }
  std::int64_t file_bytes_read() const override {
    const bool at_end = !batch_ && next_group_ >= end_group_;
    const int group = at_end ? end_group_ : std::max(0, next_group_ - 1);
    return std::max<std::int64_t>(0, table_.begins[static_cast<std::size_t>(group)] - range_.begin);
  }

 private:
  /// Makes the next lines; returns false at the end.
  bool make_lines() {
    lines_.clear();
    used_ = 0;
    while (!batch_ || row_ == batch_->num_rows()) {
      if (!next_batch()) return false;
    }
    guarded(fmt::format("{}, row group {}", range_.path, next_group_), [&] {
      for (; row_ < batch_->num_rows() && lines_.size() < lines_bytes; ++row_) append_row(*batch_, row_, lines_);
    });
    return true;
  }

  /// Reads the next batch; returns false at the end.
  bool next_batch() {
    row_ = 0;
    batch_.reset();
    while (reader_ || next_group_ < end_group_) {
      const int number = next_group_ + (reader_ ? 0 : 1);  // from 1
      guarded(fmt::format("{}, row group {}", range_.path, number), [&] {
        if (!reader_) reader_ = table_.groups->open(next_group_++);
        check(reader_->ReadNext(&batch_));
      });
      if (batch_) return true;
      reader_.reset();
    }
    return false;
  }

  Table table_;
  prepare::FileRange range_;
  int next_group_ = 0, end_group_ = 0;
  std::shared_ptr<arrow::RecordBatchReader> reader_;  // reader of the group before the next
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t row_ = 0;  // the next one of the batch
  std::string lines_;
  std::size_t used_ = 0;  // bytes of them that were read
};

}  // namespace

std::string arrow_version() { return arrow::GetBuildInfo().version_string; }

const prepare::Container* find_table(const std::string& path) {
  std::string head(prepare::container_head_bytes, '\0');
  if (compression_of(path) != Compression::none) return nullptr;
  head.resize(open_input(path)->read(head.data(), head.size()));
  const prepare::Container* const found = prepare::find_container(head);
  return found && found->table != TableKind::none ? found : nullptr;
}

std::unique_ptr<prepare::ByteSource> open_table(const prepare::Container& format, const prepare::FileRange& range,
                                                std::string_view columns) {
  return std::make_unique<TableRows>(format, range, columns);
}

std::int64_t row_group_begin(const prepare::Container& format, const std::string& path, std::int64_t at) {
  const Table table = open_groups(format, path, "");
  return *std::ranges::lower_bound(table.begins, std::min(at, table.begins.back()));
}

}  // namespace trireme::io

#endif
