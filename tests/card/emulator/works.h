// tests/card/emulator/works.h -- what streams do beside kernels: copies, fills, host functions.
#pragma once

#include <vector>

#include "tests/card/emulator/device.h"

namespace megjit::card {

struct Rows {  // pitched memory
    size_t pitch = 0, width = 0, height = 1;  // bytes
};

class CopyWork : public Work {
public:
    struct Side {
        Address address = 0;
        bool on_card = false;
        size_t pitch = 0;
    };
    // Checks both sides of cards now; a pageable source is staged when `stage`. Throws Fault.
    CopyWork(Card& card, Side to, Side from, size_t width, size_t height, bool stage);
    double run(Card& card) override;

    Side to, from;
    size_t width, height;  // bytes, rows

private:
    std::vector<std::byte> staged_;
};

class FillWork : public Work {
public:
    FillWork(Card& card, Address to, uint32_t value, uint32_t element_bytes, Rows rows);
    double run(Card& card) override;

    Address to;
    uint32_t value, element_bytes;
    Rows rows;
};

class HostWork : public Work {
public:
    HostWork(void (*function)(void*), void* data) : function(function), data(data) {}
    double run(Card& card) override;
    bool runs_after_fault() const override { return true; }

    void (*function)(void*);
    void* data;
};

// A kernel of a library, which the host computes (megjit_card_library_work).
class LibraryWork : public Work {
public:
    struct Operand {
        Address address;
        size_t bytes;
    };
    using Run = const char* (*)(void* data, void* const* places);
    using Drop = void (*)(void* data);
    LibraryWork(std::string name, std::vector<Operand> operands, double flops, Run run, Drop drop,
                void* data)
        : name_(std::move(name)),
          operands_(std::move(operands)),
          flops_(flops),
          run_(run),
          drop_(drop),
          data_(data) {}
    ~LibraryWork() override { drop_(data_); }
    LibraryWork(const LibraryWork&) = delete;
    double run(Card& card) override;

private:
    std::string name_;
    std::vector<Operand> operands_;
    double flops_;
    Run run_;
    Drop drop_;
    void* data_;
};

// Whether this thread runs a host function, which must not call the driver.
bool in_host_function();

class LiveWork : public Work {  // of cuMemAllocAsync
public:
    explicit LiveWork(Address address) : address_(address) {}
    double run(Card& card) override;

private:
    Address address_;
};

class FreeWork : public Work {
public:
    explicit FreeWork(Address address) : address_(address) {}
    double run(Card& card) override;

private:
    Address address_;
};

}  // namespace megjit::card
