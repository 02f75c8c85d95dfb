#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// Returns the names in a folder, sorted, without "." and ".."; empty if there is no such folder. Throws IoError if it
/// cannot be read.
std::vector<std::string> names_in(const std::string& folder);

/// Returns the absolute path of a file that need not exist, without links as far as it exists, and without a final
/// slash.
std::string full_path(const std::string& path);

/// Returns whether the path is a folder; a symbolic link to one is not. Throws IoError if that cannot be determined.
bool is_folder(const std::string& path);

/// Returns whether anything exists at the path. Throws IoError if that cannot be determined.
bool is_there(const std::string& path);

/// Throws IoError unless something exists at the path: fails before work that only later opens it.
void check_there(const std::string& path);

/// Returns a digest of the names, sizes and times of modification of a file, or of all files in a folder and its
/// subfolders, to eight levels. Follows symbolic links. Throws IoError if anything cannot be inspected.
std::string files_digest(const std::string& path);

/// Creates the folder and its missing parents, and syncs their names to disk.
void make_folders(const std::string& path);

/// Deletes a folder that holds only files; those called `first` before the others. Throws IoError if that
/// fails.
void remove_folder(const std::string& folder, std::string_view first);

/// Returns the bytes available to this user on the file system of `path`; of one in memory at most the free memory.
std::int64_t free_bytes(const std::string& path);

/// Replaces the content of a file atomically: after a crash it has either the old or the new content. A crash may leave
/// PATH.new. One process at a time.
void write_durably(const std::string& path, std::string_view bytes);

/// Creates a file beside `path` and removes it. Throws IoError if that fails, ConfigError if `path` is a folder, device
/// or pipe.
void check_writable(const std::string& path);

/// Returns eight hexadecimal digits that no other process uses.
std::string unique_suffix();

}  // namespace trireme::io
