#include "io/corpus/prepare_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "io/arrow/tables.hpp"
#include "io/compression/compression.hpp"
#include "io/corpus/corpus_sink.hpp"
#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "io/corpus/part_file.hpp"
#include "io/json/json_text.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"

namespace trireme::io {
namespace {

class TextFiles final : public prepare::InputFiles {
 public:
  prepare::InputFileInfo inspect(const std::string& path) const override {
    static_cast<void>(regular_file_size(path));  // throws if it is not one
    struct stat status {};
    TRIREME_CHECK(stat(path.c_str(), &status) == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
    const prepare::Container* const table = find_table(path);
    return {.size_bytes = status.st_size,
            .is_divisible = compression_of(path) == Compression::none &&
                            (!table || table->table != prepare::TableKind::arrow_stream),
            .holds_rows = table != nullptr,
            .identity = fmt::format("{} {} {}.{:09}", std::filesystem::absolute(path).string(), status.st_size,
                                    status.st_mtim.tv_sec, status.st_mtim.tv_nsec)};
  }
  std::unique_ptr<ByteSource> open(const prepare::FileRange& range, std::string_view columns) const override {
    if (const prepare::Container* table = find_table(range.path)) return open_table(*table, range, columns);
    return open_input(range.path, range.begin, range.end);
  }
  std::int64_t row_group_begin(const std::string& path, std::int64_t at) const override {
    const prepare::Container* const table = find_table(path);
    TRIREME_CHECK(table != nullptr, DataError, "{} was a table and is none any more", path);
    return io::row_group_begin(*table, path, at);
  }
  bool is_same(const std::string& a, const std::string& b) const override {
    std::error_code ignored;  // one of the files may not exist yet
    return a == b || std::filesystem::equivalent(a, b, ignored) || full_path(a) == full_path(b);
  }
};

class WorkFile final : public prepare::RandomAccessFile {
 public:
  WorkFile(std::string path, prepare::Access access) : path_(std::move(path)) {
    using prepare::Access;
    if (access == Access::read || access == Access::write) {
      const bool writes = access == Access::write;
      file_.reset(::open(path_.c_str(), (writes ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
      TRIREME_CHECK(file_, IoError, "cannot {} {}: {}{}", writes ? "write" : "open", path_, std::strerror(errno),
                    writes ? "; all ranks must see its folder" : "");
      return;
    }
    file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_ || (access == Access::create_unnamed && unlink(path_.c_str()) != 0)) {
      throw_system_error("cannot write " + path_, errno);
    }
  }

  void read(std::int64_t offset, std::span<char> bytes) const override {
    read_at(file_.get(), path_, bytes.data(), bytes.size(), offset);
  }
  void write(std::int64_t offset, std::string_view bytes) override {
    write_at(file_.get(), path_, bytes.data(), bytes.size(), offset);
  }
  std::int64_t size_bytes() const override {
    struct stat status {};
    TRIREME_CHECK(fstat(file_.get(), &status) == 0, IoError, "cannot inspect {}: {}", path_, std::strerror(errno));
    return status.st_size;
  }
  void sync() override {
    TRIREME_CHECK(fsync(file_.get()) == 0, IoError, "cannot bring {} to the disk: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  Descriptor file_;
};

constexpr const char* work_lock_name = "lock";

/// Returns whether a file is a lock or a finished part, which is named by its digest: a job leaves at least one.
bool is_own_name(std::string_view name) {
  return name.starts_with(work_lock_name) ||
         (name.size() == digest_digits && name.find_first_not_of("0123456789abcdef") == name.npos);
}

/// Refuses a folder without a lock or a part: it is another program's.
class WorkFolder final : public prepare::WorkFolder {
 public:
  WorkFolder(std::string path, const std::string& target, std::set<std::string> kept)
      : path_(std::move(path)), kept_(std::move(kept)) {
    check_replaceable(target);
    TRIREME_CHECK(mkdir(path_.c_str(), 0777) == 0 || errno == EEXIST, IoError,
                  "cannot write {}: its work folder {} cannot be created: {}", target, path_, std::strerror(errno));
    const std::vector<std::string> names = names_in(path_);
    const bool is_ours = names.empty() || std::ranges::any_of(names, is_own_name);
    TRIREME_CHECK(is_ours, IoError,
                  "{} is needed for work, but holds files that this program did not leave there, {} first", path_,
                  names.front());
    lock_ = std::make_unique<FolderLock>(path_ + "/" + work_lock_name, target);
    clear();
  }

  ~WorkFolder() override {
    try {
      if (clear()) log::info("{} keeps the parts that are done for the next build of this corpus", path_);
    } catch (const Error& error) {
      log::warn("{} can be deleted: {}", path_, error.what());
    }
    lock_.reset();
    rmdir(path_.c_str());  // fails if files are kept or another job has just taken it
  }

  WorkFolder& operator=(WorkFolder&&) = delete;

  void keep_none() override { kept_.clear(); }

 private:
  /// Removes all files except those kept; returns whether any are kept.
  bool clear() const {
    bool keeps = false;
    for (const std::string& name : names_in(path_)) {
      if (name == work_lock_name) continue;
      keeps |= kept_.contains(name);
      const std::string file = path_ + "/" + name;
      TRIREME_CHECK(kept_.contains(name) || unlink(file.c_str()) == 0 || errno == ENOENT, IoError,
                    "cannot delete {}: {}", file, std::strerror(errno));
    }
    return keeps;
  }

  std::string path_;
  std::set<std::string> kept_;
  std::unique_ptr<FolderLock> lock_;
};

class WorkFiles final : public prepare::WorkFiles {
 public:
  std::unique_ptr<prepare::WorkFolder> lock_folder(const std::string& path, const std::string& target,
                                                   const std::set<std::string>& kept) const override {
    return std::make_unique<WorkFolder>(path, target, kept);
  }
  std::unique_ptr<prepare::RandomAccessFile> open(const std::string& path, prepare::Access access) const override {
    return std::make_unique<WorkFile>(path, access);
  }
  bool exists(const std::string& path) const override { return is_there(path); }
  void touch(const std::string& path) const override {
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  }
  void commit(const std::string& path, const std::string& target) const override {
    sync_to_disk(path);
    rename_durably(path, target);
  }
  std::string compressed(std::string_view bytes, Compression compression) const override {
    return packed(bytes, compression);
  }
};

class JsonLines final : public prepare::JsonLines {
 public:
  std::string text(std::string_view line, const std::string& key, const std::string& path,
                   std::int64_t line_number) const override {
    return json_text(line, key, path, line_number, ". Try another <json_key>");
  }
  std::optional<std::string> optional_text(std::string_view line, const std::string& key, const std::string& path,
                                           std::int64_t line_number) const override {
    return optional_json_text(line, key, path, line_number);
  }
  std::string line(const std::string& key, const std::string& text) const override { return json_line(key, text); }
  std::string with_text(std::string_view line, const std::string& key, const std::string& text) const override {
    return with_json_text(line, key, text);
  }
  std::string value(std::string_view line, const std::string& key) const override { return json_value(line, key); }
};

class Corpora final : public prepare::Corpora {
 public:
  std::unique_ptr<prepare::CorpusSource> open(const std::string& path) const override {
    return std::make_unique<CorpusStore>(path);
  }
  std::unique_ptr<prepare::CorpusSink> create(prepare::CorpusKind kind, const std::string& path,
                                              const data::CorpusInfo& info) const override {
    return create_sink(kind, path, info);
  }
  std::unique_ptr<prepare::CorpusFrame> begin(const std::string& path, const data::Tokenizer& tokenizer,
                                              prepare::CorpusContents contents) const override {
    return begin_corpus_file(path, tokenizer, std::move(contents));
  }
  std::unique_ptr<prepare::PartWriter> create_part(const std::string& path, std::int64_t vocabulary_size,
                                                   bool begins_inside_document) const override {
    return io::create_part(path, vocabulary_size, begins_inside_document);
  }
  std::unique_ptr<prepare::PartReader> open_part(const std::string& path, prepare::PartSection section,
                                                 std::int64_t first) const override {
    return io::open_part(path, section, first);
  }
};

}  // namespace

prepare::Files prepare_files() {
  return {.inputs = std::make_shared<TextFiles>(),
          .work = std::make_shared<WorkFiles>(),
          .corpora = std::make_shared<Corpora>(),
          .json = std::make_shared<JsonLines>()};
}

}  // namespace trireme::io
