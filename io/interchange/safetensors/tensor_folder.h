// Reads the weights of a folder as Hugging Face's library `transformers` writes it: all tensors in
// model.safetensors, or in the shards that model.safetensors.index.json lists.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

class TensorFolder {
 public:
  // Opens the files and reads their headers. Throws MissingFileError for a missing folder, file or
  // shard; DataError for a damaged file, a name of a file that is not in the folder itself, a
  // tensor that two shards have, one that the index promises and its shard lacks, and one that the
  // index does not list.
  explicit TensorFolder(const std::string& folder);

  struct Place {
    std::size_t file, index;  // index: of the file's entries
  };
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  // Tensors of types that are not read, by name: the file's name for the type, "I8".
  const std::map<std::string, std::string>& unread() const { return unread_; }

  const ArrayEntry& entry(Place place) const { return files_[place.file]->entries()[place.index]; }
  const std::string& file_name(Place place) const { return files_[place.file]->name(); }
  // Reads one tensor as it is stored. Throws DataError and Error as ArraySource::read().
  NamedArray load(Place place);

 private:
  void open(const std::string& path);
  void open_shards(const std::string& folder, const std::string& index);

  std::vector<std::unique_ptr<ArraySource>> files_;
  std::map<std::string, Place> tensors_;
  std::map<std::string, std::string> unread_;
};

}  // namespace io
