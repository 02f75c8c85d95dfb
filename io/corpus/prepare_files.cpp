#include "io/corpus/prepare_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "io/compression/compression.hpp"
#include "io/corpus/corpus_copy.hpp"
#include "io/corpus/corpus_view.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "io/corpus/part_file.hpp"
#include "io/json/json_text.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "io/posix/work_folder.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

class TextFiles final : public prepare::InputFiles {
 public:
  prepare::InputFileInfo inspect(const std::string& path) const override {
    static_cast<void>(regular_file_size(path));  // throws if it is not one
    struct stat status {};
    TRIREME_CHECK(stat(path.c_str(), &status) == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
    return {.size_bytes = status.st_size,
            .is_compressed = compression_of(path) != Compression::none,
            .identity = fmt::format("{} {} {}.{:09}", std::filesystem::absolute(path).string(), status.st_size,
                                    status.st_mtim.tv_sec, status.st_mtim.tv_nsec)};
  }
  std::unique_ptr<ByteSource> open(const prepare::FileRange& range) const override {
    return open_input(range.path, range.begin, range.end);
  }
  bool is_same(const std::string& a, const std::string& b) const override {
    std::error_code ignored;
    return a == b || std::filesystem::equivalent(a, b, ignored);
  }
};

class WorkFile final : public prepare::RandomAccessFile {
 public:
  WorkFile(std::string path, prepare::Access access) : path_(std::move(path)) {
    switch (access) {
      case prepare::Access::create:
      case prepare::Access::create_unnamed:
        file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (!file_) throw_system_error("cannot write " + path_, errno);
        if (access == prepare::Access::create_unnamed && unlink(path_.c_str()) != 0) {
          throw_system_error("cannot write " + path_, errno);
        }
        break;
      case prepare::Access::write:
        file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
        TRIREME_CHECK(file_, IoError, "cannot write {}: {}; all ranks must see its folder", path_,
                      std::strerror(errno));
        break;
      case prepare::Access::read:
        file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
        TRIREME_CHECK(file_, IoError, "cannot open {}: {}", path_, std::strerror(errno));
        break;
    }
  }

  void read(std::int64_t offset, std::span<char> bytes) const override {
    read_at(file_.get(), path_, bytes.data(), bytes.size(), offset);
  }
  void write(std::int64_t offset, std::string_view bytes) override {
    write_at(file_.get(), path_, bytes.data(), bytes.size(), offset);
  }
  void sync() override {
    TRIREME_CHECK(fsync(file_.get()) == 0, IoError, "cannot bring {} to the disk: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  Descriptor file_;
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
    return json_text(line, key, path, line_number);
  }
  std::string line(const std::string& key, const std::string& text) const override { return json_line(key, text); }
  std::string with_text(std::string_view line, const std::string& key, const std::string& text) const override {
    return with_json_text(line, key, text);
  }
  std::string value(std::string_view line, const std::string& key) const override { return json_value(line, key); }
};

/// A corpus in progress, and the lock that keeps other jobs from writing it.
class LockedSink final : public prepare::CorpusSink {
 public:
  LockedSink(prepare::CorpusKind kind, const std::string& path, const data::CorpusInfo& info)
      : lock_(path + ".lock", path) {
    if (kind == prepare::CorpusKind::view) {
      sink_ = std::make_unique<CorpusViewWriter>(path);
    } else {
      sink_ = std::make_unique<CorpusCopy>(path, info);
    }
  }

  void take_from(const prepare::CorpusSource& source) override { sink_->take_from(source); }
  void append(std::int64_t begin, std::int64_t end) override { sink_->append(begin, end); }
  void end_sentence() override { sink_->end_sentence(); }
  void end_document() override { sink_->end_document(); }
  std::int64_t documents() const override { return sink_->documents(); }
  prepare::CorpusSize finish() override { return sink_->finish(); }

 private:
  FolderLock lock_;
  std::unique_ptr<prepare::CorpusSink> sink_;
};

class Corpora final : public prepare::Corpora {
 public:
  std::unique_ptr<prepare::CorpusSource> open(const std::string& path) const override {
    return std::make_unique<CorpusStore>(path);
  }
  std::unique_ptr<prepare::CorpusSink> create(prepare::CorpusKind kind, const std::string& path,
                                              const data::CorpusInfo& info) const override {
    return std::make_unique<LockedSink>(kind, path, info);
  }
  void write(const std::string& path, const data::Tokenizer& tokenizer,
             const prepare::CorpusContents& contents) const override {
    write_corpus_file(path, tokenizer, contents);
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
