package denial

import (
	"bytes"
	"slices"
	"syscall"
)

// phrase is the text under which programs report errno.
type phrase struct {
	text  []byte
	errno syscall.Errno
}

// translation holds the three texts of one glibc message catalogue.
type translation struct{ eacces, erofs, eperm string }

// translations are the strerror texts of glibc: first the C locale, in the
// spelling of C programs and in the one of Go and Node, then its catalogues
// (de, es, fr, it, pt, pt_BR, nl, pl, ru, uk, ja, zh_CN, zh_TW, ko, tr, sv,
// da, nb, fi, cs, hu, ro), byte for byte in UTF-8. A command that selects
// another encoding or another language is not recognised.
var translations = []translation{
	{"Permission denied", "Read-only file system", "Operation not permitted"},
	{"permission denied", "read-only file system", "operation not permitted"},
	{"Keine Berechtigung", "Das Dateisystem ist nur lesbar", "Die Operation ist nicht erlaubt"},
	{"Permiso denegado", "Sistema de ficheros de sólo lectura", "Operación no permitida"},
	{"Permission non accordée", "Système de fichiers accessible en lecture seulement", "Opération non permise"},
	{"Permesso negato", "File system in sola lettura", "Operazione non permessa"},
	{"Permissão recusada", "Sistema de ficheiros só de leitura", "Operação não permitida"},
	{"Permissão negada", "Sistema de arquivos somente para leitura", "Operação não permitida"},
	{"Toegang geweigerd", "Bestandssysteem is alleen-lezen", "Actie is niet toegestaan"},
	{"Brak dostępu", "System plików wyłącznie do odczytu", "Operacja niedozwolona"},
	{"Отказано в доступе", "Файловая система доступна только для чтения", "Операция не позволена"},
	{"Відмовлено у доступі", "Файлова система тільки для зчитування", "Дію заборонено"},
	{"許可がありません", "読み込み専用ファイルシステムです", "許可されていない操作です"},
	{"权限不够", "只读文件系统", "不允许的操作"},
	{"拒絕不符權限的操作", "唯讀的檔案系統", "此項操作並不被允許"},
	{"허가 거부", "읽기전용 파일 시스템", "명령을 허용하지 않음"},
	{"Erişim engellendi", "Salt-okunur dosya sistemi", "İşleme izin verilmedi"},
	{"Åtkomst nekas", "Skrivskyddat filsystem", "Operationen inte tillåten"},
	{"Adgang nægtet", "Filsystem med kun læseadgang", "Operationen er ikke tilladt"},
	{"Ikke tilgang", "Filsystem med kun lesetilgang", "Operasjonen er ikke tillatt"},
	{"Lupa evätty", "Kirjoitussuojattu tiedostojärjestelmä", "Toiminto ei ole sallittu"},
	{"Operace zamítnuta", "Systém souborů je pouze pro čtení", "Operace není povolena"},
	{"Engedély megtagadva", "Írásvédett fájlrendszer", "A művelet nem engedélyezett"},
	{"Permisiune refuzată", "Sistem de fișiere numai-pentru-citire", "Operație nepermisă"},
}

// errnoNames are the names that Denial.Evidence uses.
var errnoNames = map[syscall.Errno]string{
	syscall.EACCES: "EACCES",
	syscall.EROFS:  "EROFS",
	syscall.EPERM:  "EPERM",
}

// phrasesIn returns the phrases of the given errnos that occur in text. An
// errno other than EACCES, EROFS and EPERM has none.
func phrasesIn(text []byte, errnos []syscall.Errno) []phrase {
	var found []phrase
	add := func(s string, errno syscall.Errno) {
		if p := []byte(s); slices.Contains(errnos, errno) && bytes.Contains(text, p) {
			found = append(found, phrase{p, errno})
		}
	}
	for _, t := range translations {
		add(t.eacces, syscall.EACCES)
		add(t.erofs, syscall.EROFS)
		add(t.eperm, syscall.EPERM)
	}
	return found
}

// splitAtPhrase cuts line around its last phrase.
func splitAtPhrase(line []byte, phrases []phrase) (head, tail string, errno syscall.Errno, ok bool) {
	last := -1
	var hit phrase
	for _, p := range phrases {
		if i := bytes.LastIndex(line, p.text); i > last {
			last, hit = i, p
		}
	}
	if last < 0 {
		return "", "", 0, false
	}
	return string(line[:last]), string(line[last+len(hit.text):]), hit.errno, true
}
