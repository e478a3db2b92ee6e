// Decides which files of a folder are data, with one rule for the readers of all data sets.
//
// Hidden entries (".x", and "__MACOSX", where macOS archives keep them) are skipped. Symbolic links
// are followed; a broken link, or a link to a folder that contains it, is an error, so that no
// sample is silently missing. Two files that are copies of each other by their names ("a.txt"
// beside "a.txt.gz" or "a (1).txt") are an error that names both: read twice, the same samples
// would be used for training and for testing. Other files are left out and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace io {

struct FolderEntry {
  enum class Kind : std::uint8_t { kFile, kFolder, kOther, kMissing };  // kOther: a device, a pipe
  std::string path, name;
  Kind kind = Kind::kFile;  // kind of a link's target; kMissing: the link is broken
  std::string fault{};      // kMissing: the link and the reason
};

// Returns all entries that are not hidden, in byte order of their names. Throws MissingFileError if
// the folder does not exist (with the nearest name beside it) and Error if it cannot be listed.
std::vector<FolderEntry> list_folder(const std::string& folder);

// Throws DataError for an entry of kMissing or kOther; `expected` names the expected kind.
void check_usable(const FolderEntry& entry, const std::string& expected);

// Counts files that a reader left out by the endings of their names.
class LeftOut {
 public:
  void add(const FolderEntry& entry);
  // Returns a line for the user, "" if there are none: "data/a: left out 12 *.webp and 1 folder;
  // TAKEN".
  std::string line(const std::string& folder, const std::string& taken) const;

 private:
  std::map<std::string, std::int64_t> counts_;  // "*.webp", "folder", "file without an ending"
};

using IsWanted = std::function<bool(const std::string& name)>;

// Returns the paths of the files directly in `folder` whose names are wanted, in byte order. Throws
// as list_folder(), and DataError for two files that are copies by their names, a broken link, or a
// device.
std::vector<std::string> pick_files(const std::string& folder, const IsWanted& wanted,
                                    LeftOut& left_out);

// The same for `folder` and all folders below it, through links, in byte order of the paths. Copies
// are rejected only if their bytes are equal: cameras and browsers number pictures like this.
std::vector<std::string> pick_files_below(const std::string& folder, const IsWanted& wanted,
                                          LeftOut& left_out);

// Returns all files in `folder` and below that are not hidden, through links, in byte order of the
// paths. Throws as list_folder(), and DataError for a broken link or a cycle of links.
std::vector<std::string> all_files_below(const std::string& folder);

// Returns the line for the user about a folder with both parts, if no option names one.
std::string two_parts_line(const std::string& folder);

// Returns the name of the original of a copy ("a.txt" for "a.txt.gz", "a (1).txt" and
// "a - Copy.txt"); every other name unchanged.
std::string original_name(std::string_view name);

}  // namespace io
