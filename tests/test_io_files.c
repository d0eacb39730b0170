/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors written to a file and read from it: any layout from any layout, the format's bytes, files
 * that are wrong, failures. */
#include "tensors.h"
#include "scratch.h"
#include "sherd/files.h"
#include "sherd/ops_shape.h"

#include <limits.h>
#include <sys/stat.h>

enum { MOST_FILE = 4096 };

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_I32, SHERD_I64, SHERD_BF16};
enum { DTYPES = LEN(dtypes) };

/* ---- layouts --------------------------------------------------------------------------------- */

static sherd_status write_one(sherd_world *world, const char *path, sherd_tensor *t)
{
    const sherd_named_tensor one = {"t", t};

    return sherd_file_write(world, path, &one, 1, NULL, 0);
}

/* Values of one layout, read in another. BF16 holds few whole numbers: its shapes are small. */
static void through_a_file(sherd_world *world, const sherd_layout *from, const sherd_layout *to,
                           sherd_dtype dtype)
{
    char room[256];
    const char *path = scratch(room, "layouts");
    int64_t q = addends_of(from, (int64_t[SHERD_MAX_AXES]){0}, NULL);
    sherd_file *file = NULL;

    sherd_scope_begin(world);
    if (CHECK_OK(write_one(world, path, indices_on(from, dtype))) &&
        CHECK_OK(sherd_file_open(&file, world, path))) {
        CHECK_EQ(sherd_file_entries(file), 1);
        CHECK_EQ(sherd_file_entry_at(file, 0)->dtype, dtype);
        CHECK_EQ(count_wrong(sherd_file_read(file, "t", to), q), 0);
        CHECK_EQ(count_wrong(sherd_file_read(file, "t", NULL), q), 0);
    }
    sherd_file_destroy(file);
    sherd_scope_end(world);
    remove_file(world, path);
}

static void any_layout_is_read_in_any_other(sherd_world *world)
{
    static const int64_t shapes[][3] = {{5, 3, 2}, {1, 7, 2}, {4, 0, 3}, {9, 2, 1}};
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = ranks == 4   ? mesh_of(world, "x=2,y=2")
                             : ranks == 8 ? mesh_of(world, "x=2,y=4")
                                          : line_of_ranks(world);
    uint64_t dice = 5;

    for (int n = 0; n < 40; n++) {
        int ndim = roll(&dice, 4), lists = lists_of(mesh, ndim);
        const int64_t *shape = shapes[roll(&dice, LEN(shapes))];
        sherd_dtype dtype = dtypes[roll(&dice, DTYPES - (ranks > 1))];
        const sherd_layout *from = numbered(mesh, ndim, shape, roll(&dice, lists)), *to;
        do
            to = numbered(mesh, ndim, shape, roll(&dice, lists));
        while (to->pending_axes);
        through_a_file(world, from, to, dtype);
    }
    together(world);
}

static void cuts_and_views_are_written_as_they_are(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *cut = layout_of(mesh, 2, (int64_t[]){7, 6}, "S(0)", "0:7,0,0");
    const sherd_layout *columns = layout_of(mesh, 2, (int64_t[]){7, 6}, "S(1)", "1:1,0,5");
    const sherd_layout *turned = layout_of(mesh, 2, (int64_t[]){6, 7}, "R", NULL);
    char room[256];
    const char *path = scratch(room, "cuts");
    sherd_file *file = NULL;

    through_a_file(world, cut, columns, SHERD_F32);
    through_a_file(world, columns, cut, SHERD_I64);
    CHECK_OK(write_one(world, path, sherd_transpose(indices_on(columns, SHERD_F32), 0, 1)));
    CHECK_OK(sherd_file_open(&file, world, path));
    const float *x = sherd_tensor_read(sherd_file_read(file, "t", turned));
    for (int i = 0; i < 42; i++)
        CHECK_EQ(x[i], i % 7 * 6 + i / 7);
    sherd_file_destroy(file);
    remove_file(world, path);
}

/* On ranks outside, rank 0 among them; and read on yet another mesh. */
static void ranks_outside_of_the_mesh_take_part(sherd_world *world)
{
    const int two[] = {1, 2}, one[] = {0};
    const sherd_mesh *mesh = NULL, *other = NULL;
    char room[256];
    const char *path = scratch(room, "outside");
    sherd_file *file = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){2}, NULL, two));
    CHECK_OK(sherd_mesh_create(&other, world, 1, (int64_t[]){1}, NULL, one));
    sherd_tensor *t = indices_on(layout_of(mesh, 2, (int64_t[]){5, 4}, "S(1)", NULL), SHERD_F32);
    CHECK_OK(write_one(world, path, t));
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_EQ(count_wrong(sherd_file_read(file, "t", NULL), 1), 0);
    if (sherd_world_rank(world) == 0) {
        sherd_tensor *here =
            sherd_file_read(file, "t", layout_of(other, 2, (int64_t[]){5, 4}, "S(0)", NULL));
        CHECK_EQ(count_wrong(here, 1), 0);
    }
    sherd_file_destroy(file);
    remove_file(world, path);
}

/* ---- the format ------------------------------------------------------------------------------ */

static void the_bytes_are_those_of_the_format(sherd_world *world)
{
    static const char header[] =
        "{\"__metadata__\":{\"by\":\"a \\\"test\\\"\"},"
        "\"a.\xC3\xA4\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    char room[256], wanted[MOST_FILE] = {0}, seen[MOST_FILE];
    const char *path = scratch(room, "bytes");
    const float b[] = {1.5F, -2};
    const unsigned char a[] = {7, 8, 9};
    size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    sherd_named_tensor list[2] = {
        {"a.\xC3\xA4", sherd_mark_equal(sherd_from_data(world, SHERD_U8, (int64_t[]){3}, 1, a))},
        {"b", sherd_mark_equal(sherd_from_data(world, SHERD_F32, (int64_t[]){2, 1}, 2, b))}};

    CHECK_OK(sherd_file_write(world, path, list, 2, &(sherd_file_note){"by", "a \"test\""}, 1));
    wanted[0] = (char)padded;
    memset(wanted + 8, ' ', padded);
    memcpy(wanted + 8, header, length);
    memcpy(wanted + 8 + padded, b, sizeof b);
    memcpy(wanted + 8 + padded + sizeof b, a, sizeof a);
    FILE *file = fopen(path, "rb");
    CHECK_EQ(file ? fread(seen, 1, sizeof seen, file) : 0, 8 + padded + sizeof b + sizeof a);
    CHECK(memcmp(seen, wanted, 8 + padded + sizeof b + sizeof a) == 0);
    if (file)
        fclose(file);
    CHECK(padded < 256);
    remove_file(world, path);
}

/* Rank 0 makes a file of this header and so many bytes. */
static void put_header(sherd_world *world, const char *path, const char *header, int bytes)
{
    char text[MOST_FILE] = {0};
    size_t length = strlen(header);

    for (int i = 0; i < 2; i++)
        text[i] = (char)(length >> (8 * i) & 0xFF);
    memcpy(text + 8, header, length);
    for (int i = 0; i < bytes; i++)
        text[8 + length + (size_t)i] = (char)i;
    put_file(world, path, text, 8 + length + (size_t)bytes);
}

static void what_others_write_is_read(sherd_world *world)
{
    static const char header[] =
        " { \"late\" : {\"dtype\":\"I32\", \"data_offsets\":[4,12],\"shape\":[2],\"more\":1},\n"
        "\"none\":{\"shape\":[0,3],\"dtype\":\"F64\",\"data_offsets\":[4,4]},"
        "\"never\":{\"shape\":[0,2147483648,2147483648],\"dtype\":\"F64\","
        "\"data_offsets\":[4,4]},"
        "\"turned\":{\"shape\":[2147483648,2147483648,0],\"dtype\":\"F64\","
        "\"data_offsets\":[4,4]},"
        "\"scalar\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[12,14]},"
        "\"__metadata__\":{\"format\":\"pt\"},"
        "\"small\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]},"
        "\"fnuz\":{\"dtype\":\"F8_E5M2FNUZ\",\"shape\":[1],\"data_offsets\":[14,15]},"
        "\"four\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[15,18]},"
        "\"six\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[18,21]}}   ";
    char room[256];
    const char *path = scratch(room, "others");
    sherd_file *file = NULL;

    put_header(world, path, header, 21);
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_EQ(sherd_file_entries(file), 9);
    CHECK_TEXT(sherd_file_text(file, "format"), "pt");
    CHECK(sherd_file_text(file, "form") == NULL && sherd_file_find(file, "lat") == NULL);
    const sherd_file_entry *late = sherd_file_find(file, "late");
    CHECK(late && late->dtype == SHERD_I32 && late->ndim == 1 && late->shape[0] == 2);
    CHECK(late && late->bytes == 8 && late->offset == 8 + (int64_t)strlen(header) + 4);
    const int32_t *x = sherd_tensor_read(sherd_file_read(file, "late", NULL));
    CHECK(x && x[0] == 0x07060504 && x[1] == 0x0B0A0908);
    CHECK_EQ(sherd_tensor_count(sherd_file_read(file, "none", NULL)), 0);
    CHECK_EQ(sherd_tensor_count(sherd_file_read(file, "never", NULL)), 0);
    CHECK_EQ(sherd_tensor_count(sherd_file_read(file, "turned", NULL)), 0);
    const uint16_t *y = sherd_tensor_read(sherd_file_read(file, "scalar", NULL));
    CHECK(y && *y == 0x0D0C);
    CHECK_EQ(sherd_file_find(file, "small")->dtype, SHERD_DTYPE_NONE);
    CHECK_EQ(sherd_file_find(file, "four")->dtype, SHERD_DTYPE_NONE);
    CHECK_EQ(sherd_file_find(file, "four")->bytes, 3);
    CHECK(sherd_tensor_failed(sherd_file_read(file, "small", NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    sherd_file_destroy(file);
    /* No notes, as some languages write an empty map. */
    put_header(world, path,
               "{\"__metadata__\":null,"
               "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
               4);
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_EQ(sherd_file_entries(file), 1);
    CHECK(sherd_file_text(file, "format") == NULL);
    sherd_file_destroy(file);
    remove_file(world, path);
}

#define ENTRY(rest) "{\"a\":{\"dtype\":\"F32\"," rest "}}"

/* Each is refused with a line that says why, on all ranks; none is read beyond its end. */
static void wrong_files_are_refused(sherd_world *world)
{
    static const struct {
        const char *header;
        int bytes;
        const char *says;
    } wrong[] = {
        {"{", 0, "its header"},
        {"[]", 0, "no header that is an object"},
        {"{\"a\":1}", 0, "dtype"},
        {"{\"a\":{},\"a\":{}}", 0, "duplicate"},
        {"{\"__metadata__\":null,\"a\":null}", 0, "dtype"},
        {"{\"__metadata__\":[]}", 0, "no header"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "nothing but text"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {ENTRY("\"shape\":4,\"data_offsets\":[0,4]"), 4, "no shape"},
        {ENTRY("\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "a size that is not a whole number"},
        {ENTRY("\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "a size that is not a whole number"},
        {ENTRY("\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]"), 4,
         "a size that is not a whole number"},
        {ENTRY("\"shape\":[0,4611686018427387904],\"data_offsets\":[0,0]"), 0,
         "a size that is not a whole number"},
        {ENTRY("\"shape\":[2305843009213693952],\"data_offsets\":[0,4]"), 4, "number of bytes"},
        {ENTRY("\"shape\":[1],\"data_offsets\":[0]"), 4, "no valid data_offsets"},
        {ENTRY("\"shape\":[1],\"data_offsets\":[4,0]"), 4, "no valid data_offsets"},
        {ENTRY("\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "no valid data_offsets"},
        {ENTRY("\"shape\":[1],\"data_offsets\":[0,8]"), 4, "\"a\" lies beyond the end of the file"},
        {ENTRY("\"shape\":[2],\"data_offsets\":[0,4]"), 4, "number of bytes"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "number of bytes"},
        {ENTRY("\"shape\":[1],\"data_offsets\":[4,8]"), 8, "does not begin"},
        {ENTRY("\"shape\":[1],\"data_offsets\":[0,4]"), 5, "longer or shorter"},
        {ENTRY("\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, "9 dims"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "\"b\" does not begin"},
    };
    char room[256];
    const char *path = scratch(room, "wrong");
    sherd_file *file = NULL;

    /* Cut off within its header, and a length that none has. */
    put_file(world, path, "\x40\0\0\0\0\0\0\0{\"a\":", 13);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "ends within its header: that has 64 bytes behind the "
                                           "first 8, the file 5") != NULL);
    put_file(world, path, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "are not the length of a header") != NULL);
    for (int i = 0; i < LEN(wrong); i++) {
        put_header(world, path, wrong[i].header, wrong[i].bytes);
        sherd_status status = sherd_file_open(&file, world, path);
        if (!CHECK(status == (strstr(wrong[i].says, "dims") ? SHERD_ELIMIT : SHERD_EINVAL)) ||
            !CHECK(file == NULL && strstr(sherd_world_error(world), wrong[i].says) != NULL) ||
            !CHECK(strstr(sherd_world_error(world), "sherd_file_open: \"/") != NULL))
            fprintf(stderr, "  %s: %s\n", wrong[i].header, sherd_world_error(world));
    }
    put_file(world, path, "\377\377\377\377\377\377\377\377", 8);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    put_file(world, path, "\10\0\0", 3);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it ends early") != NULL);
    remove_file(world, path);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "No such file") != NULL);
    CHECK_EQ(sherd_file_open(&file, world, "/"), SHERD_EINVAL);
    together(world);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Rank 1 passes another path, name, dtype, note: the error has both. */
static void what_differs_is_told(sherd_world *world, const char *path, sherd_tensor *t)
{
    bool other = sherd_world_rank(world) == 1;
    int64_t ten = 10, two = 2;
    sherd_tensor *half = sherd_constant(world, SHERD_F16, &ten, 1, 1);
    sherd_tensor *short_one = sherd_constant(world, SHERD_F32, &two, 1, 1);
    char text[300];
    const sherd_named_tensor named[2] = {{"t", t}, {other ? "u" : "v", t}};
    const sherd_named_tensor typed[2] = {{"t", t}, {"v", other ? half : t}};
    const sherd_named_tensor sized[2] = {{"t", t}, {"v", other ? short_one : t}};
    const sherd_file_note step = {"step", other ? "5" : "6"};

    if (sherd_world_ranks(world) < 2)
        return;
    CHECK_EQ(sherd_file_write(world, other ? "/tmp/b.st" : "/tmp/a.st", named, 1, NULL, 0),
             SHERD_EDIFFER);
    CHECK_TEXT(sherd_world_error(world), "rank 0: sherd_file_write: rank 0 passed the path "
                                         "\"/tmp/a.st\", rank 1 the path \"/tmp/b.st\"");
    snprintf(text, sizeof text, "%s%s", path, other ? ".other" : "");
    CHECK_EQ(sherd_file_write(world, text, named, 1, NULL, 0), SHERD_EDIFFER);
    CHECK_EQ(sherd_file_write(world, path, named, 2, NULL, 0), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "tensor 1, f32[10], \"v\", rank 1 ") != NULL);
    CHECK(strstr(sherd_world_error(world), "tensor 1, f32[10], \"u\"") != NULL);
    CHECK_EQ(sherd_file_write(world, path, typed, 2, NULL, 0), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "tensor 1, f16[10], \"v\"") != NULL);
    CHECK_EQ(sherd_file_write(world, path, sized, 2, NULL, 0), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "tensor 1, f32[2], \"v\"") != NULL);
    CHECK_EQ(sherd_file_write(world, path, named, other ? 0 : 1, NULL, 0), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "0 tensors and 0 notes") != NULL);
    CHECK_EQ(sherd_file_write(world, path, named, 1, &step, 1), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "note \"step\", \"6\", rank 1 note \"step\", \"5\""));
}

/* Tensors of one shape: rank 1 has them in another order, or one with other cuts. */
static void another_tensor_is_not_written(sherd_world *world, const char *path)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    bool other = sherd_world_rank(world) == 1;
    int64_t ten = 10, cut[CHECK_RANKS] = {10};
    const sherd_layout *rows = layout_of(mesh, 1, &ten, "S(0)", NULL), *first = NULL;

    CHECK_OK(sherd_layout_create(&first, mesh, 1, &ten,
                                 &(sherd_placement){SHERD_SHARD, 0, SHERD_SUM},
                                 &(sherd_layout_options){.sizes = (const int64_t *[]){cut}}));
    sherd_tensor *a = indices_on(rows, SHERD_F32), *b = sherd_constant_on(rows, SHERD_F32, 1);
    sherd_tensor *c = sherd_redistribute(b, first, NULL);
    const sherd_named_tensor swapped[2] = {{"a", other ? b : a}, {"b", other ? a : b}};
    const sherd_named_tensor moved[2] = {{"a", a}, {"b", other ? c : b}};

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_ranks(world) < 2)
        return;
    CHECK_EQ(sherd_file_write(world, path, swapped, 2, NULL, 0), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "what was computed of tensor 0, \"a\"") != NULL);
    CHECK_EQ(sherd_file_write(world, path, moved, 2, NULL, 0), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "the layout of tensor 1, \"[10") != NULL);
    CHECK_OK(sherd_world_check(world));
}

/* Rank 0 knows nothing of these: rank 1 has them in another order, and the next check finds it. */
static void other_tensors_of_some_ranks_are_found(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2@1,2");
    const sherd_layout *rows = layout_of(mesh, 1, (int64_t[]){10}, "S(0)", NULL);
    bool other = sherd_world_rank(world) == 1;
    char room[256];
    const char *path = scratch(room, "some");
    sherd_tensor *t[2] = {indices_on(rows, SHERD_F32), sherd_constant_on(rows, SHERD_F32, 1)};
    const sherd_named_tensor list[2] = {{"a", t[other]}, {"b", t[!other]}};

    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_file_write(world, path, list, 2, NULL, 0));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_file_write") != NULL);
    remove_file(world, path);
}

/* What was there stays, and nothing is left behind. */
static void a_failed_write_leaves_what_was_there(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t = indices_on(layout_of(mesh, 1, (int64_t[]){10}, "S(0)", NULL), SHERD_F32);
    sherd_tensor *varies = sherd_from_data(world, SHERD_F32, (int64_t[]){1}, 1, &(float){1});
    char room[256], part[300];
    const char *path = scratch(room, "kept");
    sherd_file *file = NULL;
    sherd_named_tensor list[2] = {{"t", t}, {"t", t}};

    snprintf(part, sizeof part, "%s.part", path);
    CHECK_OK(write_one(world, path, t));
    CHECK_EQ(sherd_file_write(world, path, list, 2, NULL, 0), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"t\" is there twice") != NULL);
    CHECK_EQ(sherd_file_write(world, path, list, 1, (sherd_file_note[]){{"k", "1"}, {"k", "2"}}, 2),
             SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"k\" is there twice") != NULL);
    CHECK_EQ(sherd_file_write(world, path, list, -1, NULL, 0), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "-1 tensors, 0 notes") != NULL);
    list[1] = (sherd_named_tensor){"\xFF", t};
    CHECK_EQ(sherd_file_write(world, path, list, 2, NULL, 0), SHERD_EINVAL);
    sherd_named_tensor nameless[2] = {{"", t}, {"", t}};
    CHECK_EQ(sherd_file_write(world, path, nameless, 2, NULL, 0), SHERD_EINVAL);
    CHECK_EQ(sherd_file_write(world, path, list, 1, &(sherd_file_note){"", "\xFF"}, 1),
             SHERD_EINVAL);
    list[1] = (sherd_named_tensor){"v", varies};
    CHECK_EQ(sherd_file_write(world, path, list, 2, NULL, 0), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "tensor 1, \"v\", varies") != NULL);
    if (sherd_world_ranks(world) > 1) {
        list[1] = (sherd_named_tensor){sherd_world_rank(world) ? "v" : "w", t};
        CHECK_EQ(sherd_file_write(world, path, list, 2, NULL, 0), SHERD_EDIFFER);
    }
    what_differs_is_told(world, path, t);
    another_tensor_is_not_written(world, path);
    /* A folder in the place of PATH.part: the file can not be made; of PATH: it can not take its
     * place. */
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(mkdir(part, 0777), 0);
    together(world);
    CHECK_EQ(write_one(world, path, t), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "rank 0: sherd_file_write: \"/") != NULL);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(write_one(world, part, t), SHERD_EINVAL);
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(rmdir(part), 0);
    together(world);
    CHECK_EQ(write_one(world, "/no/such/folder/file", t), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "No such file") != NULL);
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_EQ(count_wrong(sherd_file_read(file, "t", t->layout), 1), 0);
    snprintf(part, sizeof part, "%s.part.part", path);
    CHECK(!is_there(part));
    part[strlen(part) - 5] = 0;
    CHECK(!is_there(part));
    sherd_file_destroy(file);
    remove_file(world, path);
}

/* A file that goes, or gets shorter, after it was opened. */
static void what_can_not_be_read_fails_everywhere(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *layout = layout_of(mesh, 1, (int64_t[]){10}, "S(0)", NULL);
    char room[256];
    const char *path = scratch(room, "gone");
    sherd_file *file = NULL;

    CHECK_OK(write_one(world, path, indices_on(layout, SHERD_F32)));
    CHECK_OK(sherd_file_open(&file, world, path));
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(truncate(path, 100), 0);
    together(world);
    (void)sherd_file_read(file, "t", layout);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "has changed") != NULL);
    remove_file(world, path);
    (void)sherd_file_read(file, "t", layout);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_file_read(file, "t", NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    (void)sherd_file_read(file, "u", layout);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "there is no such tensor") != NULL);
    sherd_file_destroy(file);
    together(world);
}

static void write_and_read(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *columns = NULL;
    char room[256];
    const char *path = scratch(room, "memory");
    sherd_file *file = NULL;

    sherd_scope_begin(world);
    if (!sherd_layout_parse_placements(&columns, mesh, 2, (int64_t[]){5, 8}, "S(1)", NULL)) {
        sherd_tensor *t = sherd_constant_on(columns, SHERD_F32, 2);
        sherd_status status = write_one(world, path, t);
        if (!status && !(status = sherd_file_open(&file, world, path)))
            (void)sherd_file_read(file, "t", columns);
        else if (status)
            (void)sherd_world_fail(world, status, "as was said");
        sherd_file_destroy(file);
    } else {
        (void)sherd_world_fail(world, SHERD_ENOMEM, "no layout");
    }
    sherd_scope_end(world);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "memory");

    write_and_read(world);
    fail_every_allocation(world, 0, write_and_read);
    fail_every_allocation(world, sherd_world_ranks(world) - 1, write_and_read);
    remove_file(world, path);
}

static const check_test tests[] = {
    {TEST(any_layout_is_read_in_any_other), {1, 2, 3, 4, 8}},
    {TEST(cuts_and_views_are_written_as_they_are), {3}},
    {TEST(ranks_outside_of_the_mesh_take_part), {3}},
    {TEST(the_bytes_are_those_of_the_format), {1, 2}},
    {TEST(what_others_write_is_read), {1, 3}},
    {TEST(wrong_files_are_refused), {1, 2}},
    {TEST(a_failed_write_leaves_what_was_there), {1, 2, 3}},
    {TEST(other_tensors_of_some_ranks_are_found), {3, 4}},
    {TEST(what_can_not_be_read_fails_everywhere), {1, 2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
