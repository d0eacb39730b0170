/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives every file of some folders to a fuzz target, without libFuzzer: so the seeds, among them
 * all inputs that once broke something, are tried by every run of the tests and every compiler.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The number of inputs tried; -1 if a file could not be read. */
static int try_folder(const char *folder)
{
    static uint8_t input[1 << 16];
    char path[4096];
    DIR *list = opendir(folder);
    struct dirent *entry;
    int count = 0;

    while (list && count >= 0 && (entry = readdir(list)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        size_t bytes = file ? fread(input, 1, sizeof input, file) : 0;
        count = file && !ferror(file) ? count + 1 : -1;
        if (file)
            fclose(file);
        if (count > 0)
            LLVMFuzzerTestOneInput(input, bytes);
    }
    if (list)
        closedir(list);
    return list ? count : -1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = try_folder(argv[i]);
        printf("%s: %d inputs\n", argv[i], count);
        if (count <= 0)
            return 1;
    }
    return argc > 1 ? 0 : 1;
}
