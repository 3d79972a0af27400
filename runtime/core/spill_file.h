// runtime/core/spill_file.h -- SpillFile: a file in a folder of the user's, which holds values that
// memory has no room for. It has no name, so that a killed process leaves nothing behind.
//
// As a stream it runs on a thread of its own: download() writes to the file, upload() reads. An
// "address" in the file is Extent::place(), a number to which offsets may be added. What is read is
// compared with what was written, by sums that stay in memory. Large values move in chunks that two
// threads take in turn, so that the disk does not wait for sums and copies. Pages of the file do
// not stay in memory: the file is read and written past the system's cache where the file system
// allows it, else the pages are dropped.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "runtime/core/tensor.h"
#include "runtime/core/thread_stream.h"
#include "runtime/host/turn.h"

namespace megjit::runtime {

class SpillFile final : public ThreadStream, public std::enable_shared_from_this<SpillFile> {
public:
    // Values begin at multiples of kAlign, as reads past the cache require.
    static constexpr size_t kAlign = 4096;

    // This process's file in `folder`; all callers share it while one of them holds it. UserError
    // (os) where none can be made.
    static std::shared_ptr<SpillFile> in(const std::string& folder);
    ~SpillFile() override;

    // A part of the file, which belongs to its holders.
    class Extent final : public Backing, public std::enable_shared_from_this<Extent> {
    public:
        Extent(std::shared_ptr<SpillFile> file, size_t offset, size_t bytes)
            : file_(std::move(file)), offset_(offset), bytes_(bytes) {}
        ~Extent() override { file_->give_back(offset_, bytes_); }
        std::byte* place() const { return reinterpret_cast<std::byte*>(offset_); }
        void read(void* to) const override { file_->read(to, offset_, bytes_); }
        void write(const void* from) const { file_->write(offset_, from, bytes_); }
        const SpillFile& file() const { return *file_; }

    private:
        std::shared_ptr<SpillFile> file_;
        size_t offset_ = 0, bytes_ = 0;
    };
    // Calls that use the file as a stream take turns: an error belongs to the call on turn.
    Turn turn{"a call that spills to the folder"};

    // The disk's room is reserved at once: a full disk is an error here, and not in a write.
    std::shared_ptr<Extent> take(size_t bytes);

    void upload(void* to, const void* from, size_t bytes, bool stays) override;
    void download(void* to, const void* from, size_t bytes) override;

    // A child of fork() has the number of its parent's file, and must not write to it.
    bool is_inherited() const { return process_ != forks(); }
    // How fast writes and reads are, as measured when this process first asks.
    double bytes_per_second();

protected:
    void begin_thread() override;

private:
    explicit SpillFile(const std::string& folder);
    void give_back(size_t offset, size_t bytes) noexcept;
    void write(size_t offset, const void* from, size_t bytes);
    void read(void* to, size_t offset, size_t bytes);
    [[noreturn]] void fail(const char* doing, size_t bytes, const std::string& why,
                           const std::string& fix) const;
    void write_chunk(size_t offset, const std::byte* from, size_t whole, size_t bytes);
    void read_chunk(std::byte* to, size_t offset, size_t part, size_t bytes);
    void drop_pages(size_t offset, size_t bytes);
    bool is_sum(size_t offset, uint64_t sum) const;
    bool is_stream() const;
    void check_stop(bool stops) const;

    const std::string folder_;
    const uint64_t process_ = forks();
    int file_ = -1;
    bool is_direct_ = true;
    mutable Mutex books_{"the places in a spill file"};  // guards everything below
    std::map<size_t, size_t> free_;  // bytes by offset
    size_t end_ = kAlign;  // place 0 is reserved for "no place"
    std::unordered_map<size_t, uint64_t> sums_;  // by offset of a chunk
};

}  // namespace megjit::runtime
